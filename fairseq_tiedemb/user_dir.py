"""Allows one copy of the package per process, under any spelling of `--user-dir`.

fairseq imports the user dir by its last path component and treats two spellings of one folder as two folders.
"""

import functools
import os
from argparse import Namespace
from collections.abc import Callable
from pathlib import Path

PACKAGE = Path(__file__).resolve().parent


def apply() -> None:
    """Refuses a `--user-dir` with another copy of the package, and accepts this copy under every spelling.

    Without it, a folder with the package's name, such as a clone of the repository around the package, silently stands
    for the installed copy, and fairseq refuses every `--user-dir` after `import fairseq_tiedemb`.
    """
    from fairseq import utils  # not at the top: fairseq's import may import the plugin and thereby this file

    # During an import by --user-dir, fairseq's memo already holds the folder that it is importing.
    for folder in getattr(utils.import_user_module, "memo", ()):
        if Path(folder).name == PACKAGE.name:
            require_this_copy(folder)
    utils.import_user_module = accept_this_copy(utils.import_user_module, fairseq=Path(utils.__file__).parent)


def require_this_copy(folder: str | Path) -> None:
    """Raises ImportError if ``folder`` is not the folder of the imported package."""
    given = Path(folder).resolve()
    if given == PACKAGE:
        return
    inside = given / PACKAGE.name
    remedy = inside if (inside / "__init__.py").is_file() else PACKAGE
    raise ImportError(
        f"--user-dir: needs the folder of one copy of {PACKAGE.name}; got {given}, but {PACKAGE} is the copy that is "
        f"imported. Use --user-dir {remedy}."
    )


def accept_this_copy(original: Callable[[Namespace], None], *, fairseq: Path) -> Callable[[Namespace], None]:
    """Wraps fairseq's `import_user_module`, which compares folders by spelling; ``fairseq`` is fairseq's own folder."""

    @functools.wraps(original)
    def import_user_module(args: Namespace) -> None:
        folder = Path(os.path.normpath(getattr(args, "user_dir", None) or ""))
        # fairseq searches the current folder, its own folder and its parent folder.
        places = (Path.cwd(), fairseq, fairseq.parent)
        existing = [place / folder for place in places if (place / folder).exists()]
        if folder.name == PACKAGE.name and existing:
            require_this_copy(existing[0])
        else:
            original(args)

    return import_user_module
