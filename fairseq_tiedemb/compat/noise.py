"""Warnings that no user can act upon, and what is written again and again."""

import logging
import os
import warnings
from collections.abc import Callable
from typing import Any

from ._replace import replace

NOISE = (
    r"hydra\.experimental\.\w+\(\) is no longer experimental",
    r"\s*The version_base parameter is not specified",
    r"In '.*': Usage of deprecated keyword in package header",
    r"\s*'\w+' is validated against ConfigStore schema",
    r"\s*The strict flag in the compose API is deprecated",
    r"'pin_memory' argument is set as true but no accelerator is found",
    r"`torch\.cuda\.amp\.autocast\(args\.\.\.\)` is deprecated",
    r"`broadcast_buffers` is deprecated",
    r"Support for mismatched key_padding_mask and attn_mask is deprecated",
    r"`torch\.jit\.script` is deprecated",
)


def quiet_warnings() -> None:
    """Silence the warnings that fairseq's own code draws from hydra and torch, and that no user can act upon.

    Without it: every command writes some twenty lines to stderr before its first result. Two come while fairseq itself
    is imported, before a plugin of fairseq's commands is: `Please install tensorboardX`, which installing it ends, and
    from torch 2.14 one about `torch.jit.script`, which PYTHONWARNINGS=ignore::FutureWarning ends; so do hydra's four in
    fairseq-hydra-train, which imports a plugin when it has begun.
    The standard output of fairseq-generate has its results only.
    Goes line by line, as fairseq stops calling what is deprecated.
    """
    for message in NOISE:
        warnings.filterwarnings("ignore", message=message)
    # One of fairseq's speech models sets the whole process to DEBUG (models/wav2vec/wav2vec2_classification.py:25).
    if logging.getLogger().level == logging.DEBUG and os.environ.get("LOGLEVEL", "").upper() != "DEBUG":
        logging.getLogger().setLevel(logging.INFO)


def lines_of_a_log_once() -> None:
    """Let `--log-file` have each line of the progress once.

    Without it: every epoch opens the file once more (logging/progress_bar.py:46), so that the lines of the tenth stand
    there ten times, and a training of many epochs runs out of open files.
    Goes when fairseq closes it, or opens it once.
    """
    from fairseq.logging import progress_bar  # not above: see the end of this file

    def make(original: Callable[..., Any]) -> Callable[..., Any]:
        def make_bar(*args: Any, **kwargs: Any) -> Any:
            path = os.path.abspath(kwargs.get("log_file") or "")
            for handler in list(progress_bar.logger.handlers):
                if isinstance(handler, logging.FileHandler) and handler.baseFilename == path:
                    progress_bar.logger.removeHandler(handler)
                    handler.close()
            return original(*args, **kwargs)

        return make_bar

    replace(progress_bar, "progress_bar", make)


# When this is imported, which is before fairseq is in `import fairseq_tiedemb`: for what fairseq's own import says.
quiet_warnings()
