"""`--fp16 --cpu`: a rehearsal, without a GPU, of a training in float16, with loss scaling."""

import re
from argparse import Namespace
from itertools import pairwise
from pathlib import Path
from unittest import mock

import pytest
import torch
from fairseq.optim import FP16Optimizer

from fairseq_tiedemb.compat.resume import float32_weights

from .conftest import InProcess, RunCommand
from .runs import assert_same, saved
from .test_resume import FEEDFORWARD, LM, NMT

# An initial scale at which gradients overflow, and a scale that grows when two updates did not.
FP16 = ("--fp16", "--cpu", "--fp16-init-scale", 2**24, "--fp16-scale-window", 2, "--fp16-scale-tolerance", 0.0)
TRANSFORMER = (
    *("--arch", "tied_transformer_lm", "--decoder-layers", 1, "--decoder-embed-dim", 16, "--decoder-ffn-embed-dim", 16),
    *("--decoder-attention-heads", 2, "--share-decoder-input-output-embed", "--sharing-method", "cosine"),
    *("--task", "language_modeling", "--criterion", "tied_cross_entropy", "--tokens-per-sample", 5, "--batch-size", 6),
    *("--optimizer", "fused_adam", "--lr", 1e-3, "--log-format", "json", "--log-interval", 1),
)
HEADS = {
    "classes": (),
    "tree": (),
    "short-list": ("--short-list", 5),
    "nce": ("--noise-samples", 5),
    "sampled": ("--noise-samples", 5),
    "adaptive": ("--adaptive-softmax-cutoff", "4,8"),
}
UNTIED = ("--arch", "zaremba_lm_small", *LM[2:], "--output-layer")
TRAININGS = {
    "translation": ("parallel_data", NMT),
    "language model": ("lm_data", LM),
    "Transformer": ("lm_data", TRANSFORMER),
    "feed-forward": ("lm_data", (*FEEDFORWARD, 5)),
    "pure": ("lm_data", (*TRANSFORMER[:-6], "--optimizer", "adam", "--lr", 1e-3, "--memory-efficient-fp16")),
    **{head: ("lm_data", (*UNTIED, head, *flags)) for head, flags in HEADS.items()},
}


def overflows(text: str) -> list[float]:
    """Loss scales after the gradients that overflowed, and were skipped."""
    return [float(scale) for scale in re.findall(r"gradient overflow detected.*loss scale to: ([\d.]+)", text)]


@pytest.mark.slow
@pytest.mark.parametrize("name", TRAININGS)
def test_a_training_in_float16(name: str, train: InProcess, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    data, flags = TRAININGS[name]
    command = (request.getfixturevalue(data), *flags, *FP16, "--no-epoch-checkpoints", "--save-dir")
    scales = overflows(train(*command, tmp_path / "whole", "--max-update", 24))
    assert scales[0] == 2**23
    falls = [after < before for before, after in pairwise(scales)]
    assert falls[0]
    assert not all(falls), "the scale grows again after updates without overflow"
    train(*command, tmp_path / "resumed", "--max-update", 11)
    assert 2**23 not in overflows(train(*command, tmp_path / "resumed", "--max-update", 24)), "the scale is restored"
    whole, resumed = saved(tmp_path / "whole"), saved(tmp_path / "resumed")
    assert_same(resumed, whole)
    assert all(weight.isfinite().all() for weight in whole["model"].values())
    tables = [each for key, each in whole["model"].items() if re.search(r"(embed_tokens|output\w*)\.weight$", key)]
    assert len({each.data_ptr() for each in tables}) == (len(tables) if name in HEADS else 1)


@pytest.mark.parametrize("kind", [torch.bfloat16, torch.float16])
def test_weights_that_a_file_has_otherwise_stay(kind: torch.dtype) -> None:
    """Of a checkpoint whose model somebody has changed, and of one without the unrounded weights."""
    weight = torch.randn(20).to(kind)
    unrounded = torch.nn.Parameter(weight * (1 + 2**-15 * torch.rand(20)))
    assert torch.equal(unrounded.to(kind), weight)
    kept = optimizer(weight, unrounded).state_dict()
    assert torch.equal(kept["fp32_params"][0], unrounded)
    weight[3:5] += 1
    for flat in (False, True):
        loading = optimizer(weight, torch.nn.Parameter(weight.float()), flat=flat)
        loading.load_state_dict({})
        assert torch.equal(*(each.float() for each in (float32_weights(loading)[0], weight)))
        loading.load_state_dict(kept)
        found = float32_weights(loading)[0]
        assert torch.equal(found[3:5], weight[3:5].float())
        assert torch.equal(found[[0, 1, 2, *range(5, 20)]], unrounded[[0, 1, 2, *range(5, 20)]])
        before = found.clone()
        for others in ([before * (1 + 2**-16), before], [torch.ones(7)]):  # of which the first would round alike
            loading.load_state_dict({"fp32_params": others})
            assert torch.equal(float32_weights(loading)[0], before)


def optimizer(weight: torch.Tensor, unrounded: torch.nn.Parameter, *, flat: bool = False) -> FP16Optimizer:
    """fairseq's optimizer of half precision, around one that has no state."""
    inner = mock.Mock(state_dict=dict)
    cfg = Namespace(optimizer=None, common=Namespace(bf16=True, fp16_scale_window=1))
    return FP16Optimizer(cfg, [weight], inner, {0: unrounded} if flat else [unrounded])


@pytest.mark.slow
def test_two_processes(run_command: RunCommand, lm_data: Path, tmp_path: Path) -> None:
    flags = (*LM, *FP16, "--distributed-world-size", 2, "--batch-size", 3, "--max-update", 20, "--save-dir", tmp_path)
    assert overflows(run_command("train", lm_data, *flags).stdout)[0] == 2**23
    assert saved(tmp_path)["place"]["updates"] == 20
    assert all(weight.isfinite().all() for weight in saved(tmp_path)["model"].values())
