"""Flags that fairseq's commands take, and then cannot follow."""

import argparse
from importlib.util import find_spec
from typing import Any

from fairseq import options
from fairseq.sequence_generator import SequenceGenerator

from ..wrapping import wrap


def validation_needs_no_task() -> None:
    """Let `fairseq-validate` run without `--task`: the checkpoint's task, with its options, is what it validates.

    Without it: the command ends in `KeyError: None` (options.py:158), since its parser has no default task. Goes when
    it has one, as the other commands do.
    """

    @wrap(options, "parse_args_and_arch")
    def parse_args_and_arch(original: Any, parser: argparse.ArgumentParser, *args: Any, **kwargs: Any) -> Any:
        if "--task" in parser._option_string_actions and parser.get_default("task") is None:
            parser.set_defaults(task="translation")
        return original(parser, *args, **kwargs)


def beams_have_hypotheses() -> None:
    """Refuse a beam without hypotheses.

    Without it: `--beam 0` ends in ZeroDivisionError (search.py:142). Goes when fairseq checks the number.
    """

    @wrap(SequenceGenerator, "__init__")
    def init(
        original: Any, self: Any, models: Any, tgt_dict: Any, beam_size: int = 1, *args: Any, **kwargs: Any
    ) -> None:
        if beam_size < 1:
            raise ValueError(f"--beam: needs 1 or more; got {beam_size}. Use 1 for greedy search.")
        original(self, models, tgt_dict, beam_size, *args, **kwargs)


def asynchronous_writing_needs_iopath() -> None:
    """Refuse `--write-checkpoints-asynchronously` if iopath is missing.

    Without it: fairseq-train logs an error, trains nothing and ends with status 0 (fairseq_cli/train.py:76). Goes when
    it has another status.
    """

    @wrap(options, "parse_args_and_arch")
    def parse_args_and_arch(original: Any, *args: Any, **kwargs: Any) -> Any:
        parsed = original(*args, **kwargs)
        if getattr(parsed, "write_checkpoints_asynchronously", False) and not find_spec("iopath"):
            raise ValueError(
                "--write-checkpoints-asynchronously: needs the package iopath; got a Python without it. "
                "Use pip install iopath, or leave it out."
            )
        return parsed
