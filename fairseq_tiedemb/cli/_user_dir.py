"""The folder of a user's own code, which registers what a checkpoint was trained with."""

import argparse
import os


def add_user_dir(parser: argparse.ArgumentParser) -> None:
    """Adds the flag, which is fairseq's. A checkpoint names the folder too, and is not to choose what code is run."""
    parser.add_argument(
        "--user-dir", metavar="FOLDER", help="of your own sharing method, as the training had it; of ours, none"
    )


def import_user_dir(folder: str | None) -> None:
    """Imports the code, if there is any, after our plugin, as fairseq's commands do.

    Raises:
        ValueError: if there is no such folder, or it cannot be imported by its name.
    """
    if folder is None:
        return
    if os.path.isfile(folder):  # fairseq would look for a package of that name
        raise ValueError(f"--user-dir: needs a folder of Python code; got {folder}, a file. Use its folder.")
    from fairseq import utils  # which takes seconds

    import fairseq_tiedemb.plugin  # noqa: F401 (registers our models)

    try:
        utils.import_user_module(argparse.Namespace(user_dir=folder))
    except FileNotFoundError:
        raise ValueError(f"--user-dir: needs a folder of Python code; got {folder}. Use another path.") from None
    except ModuleNotFoundError:
        raise
    except ImportError as error:  # which names the flag
        raise ValueError(str(error)) from error
