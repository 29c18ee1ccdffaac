"""A training step reads no value of a tensor, but where a reason is given: on a GPU a read waits for all kernels."""

import traceback
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

import fairseq_tiedemb

from ..outputs.common import COUNTS, HEADS, features
from ..outputs.common import TARGET as WORDS_OF_HEADS
from .common import TARGET
from .test_every_model import batch_of, build, every_case

PACKAGE = Path(fairseq_tiedemb.__file__).parent
# Operations whose result, or its shape, depends on values.
READING = {"_local_scalar_dense", "nonzero", "masked_select", "equal", "_unique2", "bincount", "repeat_interleave"}
ON_A_CPU = "on a CPU alone"
FAIRSEQS = "fairseq's encoder, decoder and positions look for padding"
SHAPE = "so many words that products of the exact size are worth the wait"
REASONS = {
    ("_shapes.py", "check_target"): ON_A_CPU,
    ("losses.py", "backward"): ON_A_CPU,
    ("squared_norms.py", "squared_norms"): ON_A_CPU,
    ("models/_tied_model.py", "extract_features"): FAIRSEQS,
    ("models/lightconv.py", "forward"): FAIRSEQS,
    ("models/_search.py", "extract_features"): FAIRSEQS,
    ("models/_tied_model.py", "words"): "padding is left out, " + SHAPE,
    ("outputs/counted.py", "require_counts"): "a table without counts would train on nonsense",
    ("outputs/classes.py", "log_prob"): "logits of the targets' classes alone, " + SHAPE,
    ("outputs/bands.py", "log_prob"): "logits of the targets' bands alone, as fairseq's adaptive softmax",
    ("outputs/noise.py", "draw"): ON_A_CPU,
    ("sparse_rows.py", "distinct"): "gradients of the rows that occur alone",
    ("outputs/tree.py", "_log_prob"): "logits of the nodes on the targets' paths alone",
}


class Reads(TorchDispatchMode):
    """Notes the functions of this package in which values are read."""

    def __init__(self) -> None:
        super().__init__()
        self.places: set[tuple[str, str]] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func.overloadpacket.__name__
        masks = args[1] if name == "index" else ()
        if name in READING or any(mask is not None and mask.dtype == torch.bool for mask in masks):
            stack = [frame for frame in traceback.extract_stack() if PACKAGE in Path(frame.filename).parents]
            frames = [frame for frame in stack if not frame.name.startswith("<")]  # not <genexpr>
            if frames:
                file = Path(frames[-1].filename).relative_to(PACKAGE)
                self.places.add((str(file), frames[-1].name))
        return func(*args, **(kwargs or {}))


@every_case
def test_of_models(name: str, method: str, options: dict) -> None:
    model = build(name, sharing_method=method, **options).train()
    with Reads() as reads:
        model(**batch_of(name), target=TARGET).loss.backward()
    assert reads.places <= REASONS.keys()
    assert ("_shapes.py", "check_target") in reads.places, "this test sees reads"


@pytest.mark.parametrize("name", HEADS)
def test_of_heads(name: str) -> None:
    head = HEADS[name](COUNTS)
    with Reads() as reads:
        head.loss(features(), WORDS_OF_HEADS).loss.backward()
    assert reads.places <= REASONS.keys()


def test_reasons_are_of_functions_that_are_there() -> None:
    for file, function in REASONS:
        assert f"def {function}(" in (PACKAGE / file).read_text()
