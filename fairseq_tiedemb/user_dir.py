"""One copy of the package at a time, however `--user-dir` spells its folder.

fairseq imports the user dir by its last path component, and takes another spelling of a folder for another folder.
"""

import functools
import os
from argparse import Namespace
from collections.abc import Callable
from pathlib import Path

PACKAGE = Path(__file__).resolve().parent


def apply() -> None:
    """Refuses a `--user-dir` that another copy answered for, and accepts this copy by all its names from now on.

    Without it, a folder that has the package's name but is not the package (a clone of the repository, which has the
    package inside) silently stands for the copy that is installed, and after `import fairseq_tiedemb` no `--user-dir`
    is accepted.
    """
    from fairseq import utils  # not above: importing fairseq may import the plugin, and that this file

    # At this moment fairseq has noted which folder it is importing, unless it is Python that imports the package.
    for folder in getattr(utils.import_user_module, "memo", ()):
        if Path(folder).name == PACKAGE.name:
            require_this_copy(folder)
    utils.import_user_module = accept_this_copy(utils.import_user_module, fairseq=Path(utils.__file__).parent)


def require_this_copy(folder: str | Path) -> None:
    """Raises ImportError if a folder is not the one that this package was imported from."""
    found = Path(folder).resolve()
    if found == PACKAGE:
        return
    inside = found / PACKAGE.name
    remedy = inside if (inside / "__init__.py").is_file() else PACKAGE
    raise ImportError(
        f"--user-dir: needs the folder of one copy of {PACKAGE.name}; got {found}, but {PACKAGE} is the copy that is "
        f"imported. Use --user-dir {remedy}."
    )


def accept_this_copy(original: Callable[[Namespace], None], *, fairseq: Path) -> Callable[[Namespace], None]:
    """Wraps fairseq's `import_user_module`, which compares folders by their spelling.

    Args:
        original: that function.
        fairseq: the folder of fairseq, which is searched too.
    """

    @functools.wraps(original)
    def import_user_module(args: Namespace) -> None:
        folder = Path(os.path.normpath(getattr(args, "user_dir", None) or ""))
        # Where fairseq looks: in the current folder, in its own, and beside that one.
        places = (Path.cwd(), fairseq, fairseq.parent)
        found = [place / folder for place in places if (place / folder).exists()]
        if folder.name == PACKAGE.name and found:
            require_this_copy(found[0])
        else:
            original(args)

    return import_user_module
