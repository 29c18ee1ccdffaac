"""Allows one copy of the package per process, under any spelling of `--user-dir`.

fairseq imports the user dir by its last path component and treats two spellings of one folder as two folders.
"""

import importlib
import os
from argparse import Namespace
from pathlib import Path
from typing import Any

from fairseq import utils

from .mending import mend

PACKAGE = Path(__file__).resolve().parent.parent


def require_this_copy(folder: str | Path) -> None:
    """Raises ImportError if ``folder`` is not the folder of the imported package."""
    given = Path(folder).resolve()
    if given == PACKAGE:
        return
    inside = given / PACKAGE.name
    remedy = inside if (inside / "__init__.py").is_file() else PACKAGE
    needs, got = f"one copy of {PACKAGE.name}", f"{given}, but {PACKAGE} is the copy that is imported"
    raise ImportError(f"--user-dir: needs the folder of {needs}; got {got}. Use --user-dir {remedy}.")


# During an import by --user-dir, fairseq's memo already holds the folder that it is importing.
for folder in getattr(utils.import_user_module, "memo", ()):
    if Path(folder).name == PACKAGE.name:
        require_this_copy(folder)


@mend(utils, "import_user_module")
def one_copy_of_the_package(original: Any, args: Namespace) -> None:
    """Refuse a `--user-dir` with another copy of the package, and accept this copy under every spelling.

    Without it: a folder with the package's name, such as a clone of the repository around the package, silently stands
    for the installed copy, and fairseq refuses every `--user-dir` after `import fairseq_tiedemb` (utils.py:485).
    Goes when fairseq compares the folders themselves.
    """
    folder = Path(os.path.normpath(getattr(args, "user_dir", None) or ""))
    fairseq = Path(utils.__file__).parent
    places = (Path.cwd(), fairseq, fairseq.parent)  # where fairseq searches, in this order
    existing = [place / folder for place in places if (place / folder).exists()]
    if folder.name == PACKAGE.name and existing:
        require_this_copy(existing[0])
        importlib.import_module(f"{PACKAGE.name}.plugin")  # as the import of the folder does
    else:
        original(args)
