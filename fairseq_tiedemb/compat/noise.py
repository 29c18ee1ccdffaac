"""Silences warnings that no user can act on."""

import logging
import os
import sys
import warnings

from .mending import mend_now

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
    r"RNN module weights are not part of single contiguous chunk",
)
# A program that logs everything before it imports fairseq asks for that by itself.
CHOSEN = None if "fairseq.models" in sys.modules else logging.getLogger().level


@mend_now
def quiet_warnings() -> None:
    """Silence the warnings of hydra and torch about fairseq's own code, which no user can act on.

    Without it: every command writes some twenty lines to stderr before its first result. Some come before the plugin is
    imported, and stay: `Please install tensorboardX`, unless it is installed; from torch 2.14 one about
    `torch.jit.script`, unless PYTHONWARNINGS=ignore::FutureWarning; hydra's four in fairseq-hydra-train. Goes line by
    line, as fairseq stops calling deprecated functions.
    """
    for message in NOISE:
        warnings.filterwarnings("ignore", message=message)
    # One of fairseq's speech models sets the whole process to DEBUG (models/wav2vec/wav2vec2_classification.py:25).
    is_asked = logging.DEBUG in (CHOSEN, logging.getLevelName(os.environ.get("LOGLEVEL", "").upper()))
    if logging.getLogger().level == logging.DEBUG and not is_asked:
        logging.getLogger().setLevel(logging.INFO)
