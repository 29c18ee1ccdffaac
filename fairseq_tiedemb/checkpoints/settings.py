"""Checks the settings of a checkpoint: plain values of bounded size, which make fairseq open or fetch nothing."""

import re
from argparse import Namespace
from typing import Any, NoReturn

MOST = 100_000  # settings of a checkpoint; fairseq's have about 1,000
MOST_DEPTH = 50
MOST_TEXT = 1_000_000  # characters of all
# A setting that means another one, as fairseq's defaults do (`II("optimization.lr")`). All else that OmegaConf resolves
# runs one of its functions, or makes a long text of a short one.
REFERENCE = re.compile(r"\$\{[\w.]+\}")
# What fairseq's `file_utils.cached_path` fetches, and its like, wherever in a text: not the `tcp://` by which processes
# met, nor a corpus on `hdfs://`, which only a path that is opened here, and is not there, could be.
ADDRESS = re.compile(r"(?:https?|ftps?|s3)://", re.IGNORECASE)
IGNORED = str.maketrans("", "", "\t\r\n")  # by urllib, in the middle of an address
FAIRSEQ_FILES = re.compile(r"https?://dl\.fbaipublicfiles\.com/fairseq/[\w./-]+")
# Where a training run writes, and what it starts from: no reader of a checkpoint opens them.
OF_TRAINING = {"save_dir", "restore_file", "finetune_from_model", "tensorboard_logdir"}


def as_dict(options: Any) -> dict[str, Any]:
    """Returns options as a dict; fairseq has them as a Namespace or a mapping."""
    return dict(vars(options)) if isinstance(options, Namespace) else dict(options)


def require_plain_settings(state: dict[str, Any], path: str) -> None:
    """Raises ValueError unless the settings of a checkpoint are plain values.

    fairseq hands them to OmegaConf, which copies what is referred to twice, reads a text as YAML, replaces
    `${oc.env:NAME}` by the environment's value, and opens files that settings name: tokenizers fetch addresses.
    """
    for section in ("cfg", "args"):
        settings = state.get(section)
        if settings is not None and not isinstance(settings, dict | Namespace):
            refuse_file(path, "settings as a dictionary or a Namespace", f"{section} as {type(settings).__name__}")
        require_bounded(settings, section, path)


def refuse_file(path: str, needs: str, got: str, use: str = "a checkpoint that fairseq-train wrote") -> NoReturn:
    """Raises the ValueError of a refused checkpoint: `path: needs ...; got .... Use ....`"""
    raise ValueError(f"{path}: needs {needs}; got {got}. Use {use}.")


def require_bounded(settings: Any, section: str, path: str) -> None:
    """Raises ValueError for too many settings, repeated references counted, and for a text that is not plain."""
    waiting, seen, length = [(settings, section, 0)], 0, 0
    while waiting:
        value, name, depth = waiting.pop()
        seen += 1
        if seen > MOST or depth > MOST_DEPTH:
            most = f"at most {MOST:,} settings, nested {MOST_DEPTH} deep"
            refuse_file(path, most, f"more at {name!r}")
        if isinstance(value, Namespace):
            value = vars(value)
        if isinstance(value, dict):
            for key in value:
                if type(key) not in (str, int):  # a number is a name
                    refuse_file(path, "settings with names", f"{key!r} among those of {name!r}")
            waiting += [(item, str(key), depth + 1) for key, item in value.items()]
        elif isinstance(value, list | tuple | set):
            waiting += [(item, name, depth + 1) for item in value]
        elif isinstance(value, str):
            length += len(value)
            require_plain_text(value, name, path, length)


def require_plain_text(text: str, name: str, path: str, length: int) -> None:
    """Raises ValueError for a text that OmegaConf would resolve, for an address, and for a too large total `length`."""
    if length > MOST_TEXT:
        refuse_file(path, f"settings of at most {MOST_TEXT:,} characters", f"{length:,} at {name!r}")
    trusted = "a checkpoint from a source you trust, saved with"
    if "${" in text and not REFERENCE.fullmatch(text):
        got = f"{text[:200]!r} in {name!r}, which could read this machine's secrets. Nothing was read"
        refuse_file(path, "settings that are values", got, f"{trusted} resolved settings")
    if ADDRESS.search(text.translate(IGNORED)) and name not in OF_TRAINING and not FAIRSEQ_FILES.fullmatch(text):
        got = f"{text[:200]!r} in {name!r}, which could send something out. Nothing was sent"
        refuse_file(path, "settings that name local files", got, f"{trusted} the path of a local copy")
