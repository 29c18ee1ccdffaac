"""Provokes what stock fairseq says on today's Python, torch and numpy: python -m tests.stock_faults DATA [plugin]

Prints in JSON what became of every call: "fine", or the error. With `plugin`, fairseq is mended first. The texts are
those that fairseq_tiedemb/compat/README.md answers; tests/test_compat_messages.py compares them.
"""

import argparse
import contextlib
import dataclasses
import io
import json
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import fairseq_cli.preprocess
import fairseq_cli.score
import fairseq_cli.train
import numpy as np
import torch
from fairseq import checkpoint_utils, options
from fairseq.data import Dictionary, ListDataset, TokenBlockDataset, data_utils
from fairseq.dataclass.configs import CommonConfig
from fairseq.dataclass.utils import convert_namespace_to_omegaconf
from fairseq.distributed import utils as distributed_utils
from fairseq.modules import AdaptiveInput, AdaptiveSoftmax
from packaging.requirements import Requirement

DATA = sys.argv[1] if len(sys.argv) > 1 else ""
TINY = (
    "--encoder-layers 1 --decoder-layers 1 --encoder-embed-dim 16 --decoder-embed-dim 16 --encoder-ffn-embed-dim 16 "
    "--decoder-ffn-embed-dim 16 --optimizer adam --max-tokens 500 --max-update 1 --no-save --num-workers 0 "
    "--disable-validation"
).split()
TORCHRUN = {"MASTER_ADDR": "localhost", "MASTER_PORT": "29500", "WORLD_SIZE": "2", "RANK": "1"}


@contextlib.contextmanager
def folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as name:
        yield Path(name)


def configuration(*flags: str) -> Any:
    arguments = [DATA, "--arch", "transformer_iwslt_de_en", *TINY, *flags]
    return convert_namespace_to_omegaconf(options.parse_args_and_arch(options.get_training_parser(), arguments))


def load_checkpoint() -> None:
    with folder() as place:
        settings = {"task": {"_name": "translation"}, "model": argparse.Namespace(_name="transformer")}
        history = [{"optimizer_name": "Adam", "lr_scheduler_state": {}, "num_updates": 1}]
        state = {"args": None, "cfg": settings, "model": {}, "optimizer_history": history}
        torch.save({**state, "extra_state": {"train_iterator": {}}}, place / "checkpoint.pt")
        checkpoint_utils.load_checkpoint_to_cpu(str(place / "checkpoint.pt"))


def import_fairseq_of_pypi() -> None:
    """As its dataclass/configs.py does: a dataclass as the default of a field."""
    dataclasses.make_dataclass("FairseqConfig", [("common", CommonConfig, CommonConfig())])


def blocks_of_sentences() -> None:
    sentences = ListDataset([torch.arange(3), torch.arange(5)], [3, 5])
    TokenBlockDataset(sentences, [3, 5], block_size=None, pad=1, eos=2, break_mode="eos")


def start_two_processes() -> None:
    distributed_utils.infer_init_method(configuration("--distributed-world-size", "2").distributed_training)


def start_under_torchrun() -> None:
    with mock.patch.dict(os.environ, TORCHRUN):
        start_two_processes()


def score(flag: str) -> None:
    with folder() as place:
        text = place / "text"
        text.write_text("a b c d e\n")
        with mock.patch.object(sys, "argv", ["fairseq-score", "-s", str(text), "-r", str(text), flag]):
            fairseq_cli.score.cli_main()


def preprocess_latin_1() -> None:
    with folder() as place:
        (place / "text").write_bytes("café\n".encode("latin-1"))
        arguments = ["--only-source", "--trainpref", f"{place}/text", "--destdir", f"{place}/bin"]
        fairseq_cli.preprocess.main(options.get_preprocessing_parser().parse_args(arguments))


def read_an_empty_split() -> None:
    with folder() as place:
        shutil.copy(Path(DATA, "train.src-tgt.src.idx"), place / "train.idx")
        (place / "train.bin").touch()
        data_utils.load_indexed_dataset(str(place / "train"), Dictionary(), None)


def tied_adaptive_softmax() -> None:
    table = AdaptiveInput(30, 1, 16, 2, 32, [6, 10, 30])
    softmax = AdaptiveSoftmax(30, 16, [6, 10], 0.0, factor=2, adaptive_inputs=table, tie_proj=True)
    softmax.get_log_prob(table(torch.arange(28).view(2, 14)), None)


def adaptive_log_probabilities() -> None:
    softmax = AdaptiveSoftmax(30, 16, [6, 10], 0.0)
    softmax.get_log_prob(torch.randn(2, 14, 16, requires_grad=True), None).sum().backward()


FAULTS: dict[str, Callable[[], object]] = {
    "Weights only load failed": load_checkpoint,
    "Unsupported global: GLOBAL argparse.Namespace was not an allowed global by default": load_checkpoint,
    "mutable default <class 'fairseq.dataclass.configs.CommonConfig'> for field common is not allowed": (
        import_fairseq_of_pypi
    ),
    ".* suffix can only be used with `==` or `!=` operators": lambda: Requirement("PyYAML (>=5.1.*)"),
    "module 'numpy' has no attribute 'float'": lambda: np.float,
    "module 'numpy' has no attribute 'int'": lambda: np.int,
    "module 'numpy' has no attribute 'compat'": blocks_of_sentences,
    "percentile() got an unexpected keyword argument 'interpolation'": (
        lambda: data_utils.get_buckets(np.array([2, 3, 5, 9]), 2)
    ),
    "'NoneType' object has no attribute 'xla_device'": lambda: fairseq_cli.train.main(configuration("--bf16")),
    "Torch not compiled with CUDA enabled": lambda: fairseq_cli.train.main(configuration("--fp16")),
    "world size is 2 but have 0 available devices": start_two_processes,
    "integer modulo by zero": start_under_torchrun,
    "mat1 and mat2 shapes cannot be multiplied": tied_adaptive_softmax,
    "one of the variables needed for gradient computation has been modified by an inplace operation": (
        adaptive_log_probabilities
    ),
    "KeyError: None": lambda: options.parse_args_and_arch(options.get_validation_parser(), [DATA, "--path", "a.pt"]),
    "negative seek position -1": preprocess_latin_1,
    "cannot mmap an empty file": read_an_empty_split,
    "Each element of `refs` should be a sequence of strings": lambda: score("--sacrebleu"),
    "Scorer.__init__() takes 2 positional arguments but 4 were given": lambda: score("--sentence-bleu"),
    "invalid choice: 'lstm_nmt_wt'": lambda: options.parse_args_and_arch(
        options.get_training_parser(), ["data", "--arch", "lstm_nmt_wt"]
    ),
}


def outcome(call: Callable[[], object]) -> str:
    """What a call ends in: "fine", or its error; of a parser, what it printed."""
    printed = io.StringIO()
    try:
        with contextlib.redirect_stderr(printed), contextlib.redirect_stdout(printed):
            call()
    except SystemExit:
        return printed.getvalue()
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return "fine"


if __name__ == "__main__":
    if sys.argv[2:] == ["plugin"]:
        import fairseq_tiedemb.plugin  # noqa: F401
    print(json.dumps({text: outcome(call) for text, call in FAULTS.items()}))
