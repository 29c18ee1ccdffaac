"""The folder of a user's own code, which registers the models and methods of a checkpoint."""

import argparse
import os


def add_user_dir(parser: argparse.ArgumentParser) -> None:
    """Adds fairseq's flag. A checkpoint names the folder too, but must not choose which code runs."""
    parser.add_argument(
        "--user-dir", metavar="FOLDER", help="folder of your own code (sharing methods, models) that the training used"
    )


def import_user_dir(folder: str | None) -> None:
    """Imports the user's code, if any, after our plugin, as fairseq's commands do."""
    if folder is None:
        return
    if os.path.isfile(folder):  # fairseq would search for a package of that name
        raise ValueError(f"--user-dir: needs a folder of Python code; got {folder}, a file. Use its folder.")
    from fairseq import utils  # takes seconds

    import fairseq_tiedemb.plugin  # noqa: F401 (registers our models)

    try:
        utils.import_user_module(argparse.Namespace(user_dir=folder))
    except FileNotFoundError:
        raise ValueError(f"--user-dir: needs a folder of Python code; got {folder}. Use another path.") from None
    except ModuleNotFoundError:
        raise
    except ImportError as error:  # fairseq's message names the flag
        raise ValueError(str(error)) from error
