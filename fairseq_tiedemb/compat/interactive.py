"""fairseq-interactive."""

import argparse
from typing import Any

from fairseq import options

from ..wrapping import wrap


def interactive_alignment() -> None:
    """Refuse `fairseq-interactive --print-alignment soft` on the command line.

    Without it: ValueError, `too many values to unpack`, at the first sentence: the command prints hard alignments only
    (fairseq_cli/interactive.py:287). Goes when it prints probabilities as fairseq-generate does.
    """

    @wrap(options, "add_interactive_args")
    def add_interactive_args(original: Any, parser: Any) -> None:
        original(parser)
        for action in parser._actions:
            if action.dest == "print_alignment":
                action.type = _pairs_only


def _pairs_only(text: str) -> str:
    if text == "soft":
        raise argparse.ArgumentTypeError(
            "fairseq-interactive needs hard alignment; got soft. Use fairseq-generate for soft alignment."
        )
    return text
