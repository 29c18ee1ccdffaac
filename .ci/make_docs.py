"""Makes the reference of every public module and function from the docstrings: python .ci/make_docs.py FOLDER

The pages ask nothing of a network. Needs pdoc.
"""

import importlib
import logging
import pkgutil
import sys
from pathlib import Path

logging.disable()  # what commands say while they are imported
sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import pdoc  # noqa: E402

import fairseq_tiedemb  # noqa: E402


def modules() -> list[str]:
    """The package, and what is in it; what is in that, pdoc finds."""
    found = [each.name for each in pkgutil.iter_modules(fairseq_tiedemb.__path__) if not each.name.startswith("_")]
    return ["fairseq_tiedemb", *(f"fairseq_tiedemb.{name}" for name in found)]


def make(folder: Path) -> None:
    """Writes the pages."""
    importlib.import_module("fairseq_tiedemb.plugin")
    for name in fairseq_tiedemb.__all__:  # which the package imports when they are first used; pdoc looks for them
        setattr(fairseq_tiedemb, name, getattr(fairseq_tiedemb, name))
    pdoc.render.configure(docformat="google")
    pdoc.pdoc(*modules(), output_directory=folder)


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("make_docs: needs one FOLDER; got " + (" ".join(sys.argv[1:]) or "none") + ". Use build/docs.")
    make(Path(sys.argv[1]))
    print(f"{sys.argv[1]}/index.html")
