"""Training steps and beam search of `tied_transformer_iwslt_de_en` and fairseq's: 10,000 words, shared three ways.

What is asked of a training step of 4,000 words: every method at most 1.05 times the time of `plain`, `plain` at most
0.97 times that of fairseq's model and criterion. Of beam search: every method at most 1.02 times `plain`, and fairseq's
model, of 32 sentences and of one, 1.5 and 1.3 times it in float32, 2.0 and 1.5 times in bfloat16.
"""

import argparse
import statistics
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from fairseq.criterions import CRITERION_DATACLASS_REGISTRY
from fairseq.criterions.label_smoothed_cross_entropy import LabelSmoothedCrossEntropyCriterion
from fairseq.models import ARCH_CONFIG_REGISTRY, ARCH_MODEL_REGISTRY
from fairseq.sequence_generator import SequenceGenerator
from torch.utils.flop_counter import FlopCounterMode

from fairseq_tiedemb import bfloat16, products
from fairseq_tiedemb.criterions.cross_entropy import TiedCrossEntropy
from fairseq_tiedemb.models import _parts
from fairseq_tiedemb.modules.dropout import dropout

from ..conftest import multiply_as_torch_does
from ..models.common import dictionary
from ..models.families import task_of
from .conftest import STOCK_SEARCH, Record
from .interleave import LIUS_METHODS, SHIPPED, interleave, ratio
from .limits import OWN, OwnOperations, Work, rates, show_limit

PRESET = "transformer_iwslt_de_en"
FAIRSEQ = "fairseq"
FAIRSEQ_SHIPPED = FAIRSEQ + SHIPPED
WORDS = dictionary(10_000)
TASK = task_of(WORDS, WORDS)
LENGTH = 25
BEAMS = 5


def contestants_in(dtype: torch.dtype) -> dict[str, torch.dtype]:
    """Those of a benchmark in a precision, and the precision of each."""
    names = dict.fromkeys((FAIRSEQ, *LIUS_METHODS), dtype)
    is_another = dtype != torch.float32 or products.in_use() != "blas"
    return names | {FAIRSEQ_SHIPPED: torch.float32} if is_another else names


def build(contestant: str, **sharing: bool) -> Any:
    """fairseq's model, or ours with a method, all with the same weights."""
    prefix, method = ("", {}) if contestant.startswith(FAIRSEQ) else ("tied_", {"sharing_method": contestant})
    options = {"share_all_embeddings": True, "max_source_positions": 1024, "max_target_positions": 1024, "dropout": 0.3}
    args = argparse.Namespace(**options | method | sharing)
    ARCH_CONFIG_REGISTRY[prefix + PRESET](args)
    torch.manual_seed(1)
    return ARCH_MODEL_REGISTRY[prefix + PRESET].build_model(args, TASK)


def build_criterion(contestant: str) -> Any:
    if contestant.startswith(FAIRSEQ):
        return LabelSmoothedCrossEntropyCriterion(TASK, sentence_avg=False, label_smoothing=0.1)
    return TiedCrossEntropy.build_criterion(
        CRITERION_DATACLASS_REGISTRY["tied_cross_entropy"](label_smoothing=0.1, sentence_avg=False), TASK
    )


def sample_of(bsz: int) -> dict[str, Any]:
    torch.manual_seed(2)
    source, target = torch.randint(4, len(WORDS), (2, bsz, LENGTH))
    previous = torch.cat((torch.full((bsz, 1), WORDS.eos()), target[:, :-1]), 1)
    net_input = {"src_tokens": source, "src_lengths": torch.full((bsz,), LENGTH), "prev_output_tokens": previous}
    return {"net_input": net_input, "target": target, "ntokens": target.numel()}


def show(title: str, seconds: dict[str, list[float]]) -> dict[str, str]:
    print(f"{title}")
    for contestant in (*LIUS_METHODS, FAIRSEQ, FAIRSEQ_SHIPPED):
        if contestant in seconds:
            times = seconds[contestant]
            over_plain = ratio(seconds, contestant, "plain")
            print(f"  {contestant:24s} {statistics.median(times):7.3f} CPU s, {over_plain} of plain's time")
    over = {"fairseq": FAIRSEQ, "fairseq-shipped": FAIRSEQ_SHIPPED}
    figures = {column: ratio(seconds, "plain", peer) for column, peer in over.items() if peer in seconds}
    print(f"  plain over fairseq's time: {figures}")
    return {name: ratio(seconds, name, "plain") for name in LIUS_METHODS[1:]} | figures


@pytest.mark.benchmark
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["float32", "bfloat16"])
def test_training_step(dtype: torch.dtype, record: Record) -> None:
    sample = sample_of(160)
    steps, losses = {}, {}
    for contestant, its_dtype in contestants_in(dtype).items():
        model, criterion = build(contestant).to(its_dtype), build_criterion(contestant)
        optimizer = torch.optim.Adam(model.parameters(), lr=1e-4)

        def step(model: Any = model, criterion: Any = criterion, optimizer: Any = optimizer) -> None:
            optimizer.zero_grad(set_to_none=True)
            loss = criterion(model, sample)[0]
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()

        torch.manual_seed(3)  # the same dropout
        losses[contestant] = criterion(model, sample)[0].item()
        steps[contestant] = step
    assert losses["plain"] == pytest.approx(losses[FAIRSEQ], rel=1e-5 if dtype == torch.float32 else 1e-2)
    with FlopCounterMode(display=False) as counter:
        steps["plain"]()
    parameters = sum(parameter.numel() for parameter in build("plain").parameters())
    work = Work(counter.get_total_flops(), dtype.itemsize * parameters * 11)
    seconds = interleave({**steps, **rates(dtype), OWN: OwnOperations(steps["plain"]).again}, rounds=5)
    figures = show(f"training step, 4,000 words in 160 sentences, label smoothing 0.1, {dtype}", seconds)
    figures |= show_limit(work, seconds, "plain")
    record("speed-transformer", "step" if dtype == torch.float32 else "step,bf16", figures)


@pytest.mark.benchmark
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_what_dropouts_random_bits_cost(dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch) -> None:
    sample, model, criterion = sample_of(64), build("plain").to(dtype), build_criterion("plain")

    def step(ours: bool) -> None:
        monkeypatch.setattr(_parts, "dropout", dropout if ours else F.dropout)
        model.zero_grad(set_to_none=True)
        criterion(model, sample)[0].backward()

    seconds = interleave({"F.dropout": partial(step, False), "ours": partial(step, True)}, rounds=7)
    print(f"dropout 0.3, forward and backward pass of 1,600 words in 64 sentences, {dtype}")
    for name, times in seconds.items():
        print(f"  {name:14s} {statistics.median(times):7.3f} CPU s, {ratio(seconds, name, 'F.dropout')} of F.dropout's")


@pytest.mark.benchmark
def test_bfloat16_where_it_is_multiplied_in_float32() -> None:
    if not bfloat16.multiply_in_float32():
        pytest.skip("this processor multiplies bfloat16 itself")
    multiply_as_torch_does()
    sample, criterion = sample_of(16), build_criterion("plain")
    models = {dtype: build("plain").to(dtype) for dtype in (torch.float32, torch.bfloat16)}

    def step(dtype: torch.dtype, ours: bool = False) -> None:
        if ours:
            assert bfloat16.multiply_in_float32()
        try:
            models[dtype].zero_grad(set_to_none=True)
            criterion(models[dtype], sample)[0].backward()
        finally:
            multiply_as_torch_does()

    ours, torchs, float32 = "bfloat16, in float32", "bfloat16, torch's own", "float32"
    contestants = {torchs: partial(step, torch.bfloat16), ours: partial(step, torch.bfloat16, True)}
    seconds = interleave(contestants | {float32: partial(step, torch.float32)}, rounds=5)
    print("forward and backward pass of 400 words in 16 sentences")
    for name, times in seconds.items():
        print(f"  {name:23s} {statistics.median(times):7.3f} CPU s, {ratio(seconds, name, float32)} of float32's time")


def what_a_search_needs(model: Any, sample: dict[str, Any]) -> None:
    """The encoder, and of each step the products of all rows with the decoder's weights, packed beforehand."""
    layers = model.decoder.kept.last[1]
    rows, dtype = len(sample["target"]) * BEAMS, model.output.weight.dtype
    x, hidden = (torch.ones(rows, width, dtype=dtype) for width in (512, 1024))
    with torch.no_grad():
        model.encoder(sample["net_input"]["src_tokens"])
        for _ in range(LENGTH):
            for layer in layers:
                for each in (layer.qkv, layer.own_out, layer.query, layer.out, layer.fc1):
                    each(x)
                layer.fc2(hidden)
            model.output.scores(x)


@pytest.mark.benchmark
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["float32", "bfloat16"])
@pytest.mark.parametrize(("bsz", "rounds"), [(32, 15), (1, 15)])
def test_beam_search(bsz: int, rounds: int, dtype: torch.dtype, record: Record) -> None:
    sample = sample_of(bsz)

    def search(model: Any, generate: Any = SequenceGenerator.generate) -> None:
        # so many words and the end of sentence, whatever an untrained model would like
        generator = SequenceGenerator([model], WORDS, beam_size=BEAMS, max_len_b=LENGTH - 1, min_len=LENGTH - 1)
        hypotheses = generate(generator, [model], sample)
        assert {len(each["tokens"]) for sentence in hypotheses for each in sentence} == {LENGTH}

    models = {name: build(name).to(its_dtype).eval() for name, its_dtype in contestants_in(dtype).items()}
    for model in models.values():  # as fairseq-generate does
        model.prepare_for_inference_(SimpleNamespace(generation=SimpleNamespace(beam=BEAMS)))
    runs: dict[str, Any] = {contestant: partial(search, model) for contestant, model in models.items()}
    for peer in models.keys() & {FAIRSEQ, FAIRSEQ_SHIPPED}:
        runs[peer] = partial(search, models[peer], STOCK_SEARCH)
    runs["products"] = partial(what_a_search_needs, models["plain"], sample)
    seconds = interleave(runs, rounds=rounds)
    figures = show(f"beam {BEAMS}, {bsz} sentences of {LENGTH} words, {dtype}", seconds)
    print(f"  encoder's and products' time over plain's {ratio(seconds, 'products', 'plain')}")
    record("speed-transformer", f"beam,{bsz}" + ("" if dtype == torch.float32 else ",bf16"), figures)
