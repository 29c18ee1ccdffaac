"""Loads dictionaries of fairseq-preprocess, by fairseq."""

from pathlib import Path
from typing import Any


def load_dictionary(path: Path, *, flag: str) -> Any:
    """Returns fairseq's dictionary of a dict.txt; ValueError, naming flag and file, if it is missing, empty or none."""
    from fairseq.data import Dictionary  # fairseq's imports take seconds

    import fairseq_tiedemb.compat  # noqa: F401 (mends it)

    if not path.is_file():
        use = "Use a folder of fairseq-preprocess; with --only-source it has a dict.txt."
        raise ValueError(f"{flag}: needs a file; got {path}, which is none. {use}")
    try:
        if len(dictionary := Dictionary.load(str(path))) == dictionary.nspecial:
            raise ValueError("without words")
    except Exception as error:  # fairseq raises many classes, including Exception itself
        needs, got = "the dictionary of fairseq-preprocess", f"{path} ({' '.join(str(error).split())})"
        raise ValueError(f"{flag}: needs {needs}; got {got}. Use the one that it wrote.") from error
    return dictionary
