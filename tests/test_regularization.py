"""Penalties, projection regularization above all: one an update, however many batches, processes and rows it has."""

import copy
import math
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from fairseq.criterions import CRITERION_DATACLASS_REGISTRY
from fairseq.tasks import FairseqTask

from fairseq_tiedemb import SharedEmbedding
from fairseq_tiedemb.criterions import cross_entropy
from fairseq_tiedemb.criterions.cross_entropy import TiedCrossEntropy
from fairseq_tiedemb.models._stream_lm import StreamLM
from fairseq_tiedemb.regularizers import REGULARIZERS, Regularizer, register_regularizer

from .conftest import InProcess
from .models.common import grown
from .models.recurrent_lms import WORDS, batch, build, text
from .test_criterions import logged

LAMBDA = 0.15
MU = 0.3
OF_ROWS = {"cosine_regularization": 0.7, "norm_regularization": 0.2, "norm_target": 1.5, "mean_regularization": 0.4}


def criterion(strength: float = LAMBDA, sentence_avg: bool = True, mu: float = 0.0) -> TiedCrossEntropy:
    task = SimpleNamespace(target_dictionary=WORDS)
    of_rows = OF_ROWS if mu else {}
    return TiedCrossEntropy(
        task, sentence_avg, 0.0, projection_regularization=strength, l2_regularization=mu, **of_rows
    )


def projected(**options: Any) -> StreamLM:
    return grown(build(projection=True, projection_bias=True, **options)).double().train()


def micro_batches(number: int, seed: int = 1) -> list[dict[str, Any]]:
    """Batches of different sizes."""
    return [batch(text(2 + index, 5 + index, seed + index)) for index in range(number)]


def gradient_of_definition(
    model: StreamLM, samples: list[dict[str, Any]], sentence_avg: bool, mu: float = 0.0
) -> dict[str, torch.Tensor]:
    """That of (sum of token losses + lambda/2 ||P||^2) / sample size + mu/2 ||w||^2, all in one graph."""
    losses = [model(**sample["net_input"], target=sample["target"]).loss for sample in samples]
    size = sum(sample["nsentences" if sentence_avg else "ntokens"] for sample in samples)
    weight = dict(model.named_parameters())["decoder.projection.weight"]
    loss = (torch.stack(losses).sum() + LAMBDA / 2 * weight.pow(2).sum()) / size
    if mu:
        loss = loss + of_rows(model.output.table.weight)
    names, parameters = zip(*model.named_parameters(), strict=True)
    loss = loss + mu / 2 * torch.stack([each.pow(2).sum() for each in parameters]).sum()
    return dict(zip(names, torch.autograd.grad(loss, parameters), strict=True))


def of_rows(table: torch.Tensor) -> torch.Tensor:
    """The penalties on the rows of words, pair by pair and row by row."""
    rows = [table[word] for word in range(len(table)) if word != WORDS.pad()]
    cosines = [a @ b / a.norm() / b.norm() for i, a in enumerate(rows) for j, b in enumerate(rows) if i != j]
    norms = torch.stack([(row.norm() - OF_ROWS["norm_target"]) ** 2 for row in rows])
    mean = torch.stack(rows).mean(0)
    return (
        OF_ROWS["cosine_regularization"] * torch.stack(cosines).sum() / len(rows) ** 2
        + OF_ROWS["norm_regularization"] * norms.sum()
        + OF_ROWS["mean_regularization"] * mean @ mean
    )


def gradient_of_update(
    model: StreamLM,
    processes: list[list[dict[str, Any]]],
    sentence_avg: bool,
    monkeypatch: pytest.MonkeyPatch,
    mu: float = 0.0,
) -> dict[str, torch.Tensor]:
    """As fairseq's trainer makes it: sums over batches and processes, divided by the sum of their sample sizes."""
    monkeypatch.setattr(cross_entropy, "get_data_parallel_world_size", lambda: len(processes))
    each = criterion(sentence_avg=sentence_avg, mu=mu)
    total = {name: torch.zeros_like(parameter) for name, parameter in model.named_parameters()}
    size = 0
    for samples in processes:
        model.zero_grad()
        each.begin_update(model)
        for sample in samples:
            loss, sample_size, _ = each(model, sample)
            loss.backward()
            size += sample_size
        for name, parameter in model.named_parameters():
            assert parameter.grad is not None
            total[name] += parameter.grad
    return {name: gradient / size for name, gradient in total.items()}


@pytest.mark.parametrize(
    ("processes", "update_freq", "sentence_avg", "mu", "tied"),
    [
        (1, 1, True, 0.0, False),
        (1, 4, False, MU, True),
        (2, 2, True, MU, False),
        (3, 1, False, 0.0, True),
        (3, 4, True, MU, True),
        (3, 2, False, MU, False),
    ],
)
def test_an_update_has_each_penalty_once(
    processes: int, update_freq: int, sentence_avg: bool, mu: float, tied: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = projected(share_decoder_input_output_embed=tied)
    samples = micro_batches(processes * update_freq)
    parts = [samples[process::processes] for process in range(processes)]
    found = gradient_of_update(model, parts, sentence_avg, monkeypatch, mu)
    expected = gradient_of_definition(model, samples, sentence_avg, mu)
    torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("sentence_avg", [False, True])
def test_each_batch_has_its_activations_penalised(sentence_avg: bool) -> None:
    """alpha ||dropped h||^2 / H of each token and beta ||h_t - h_{t-1}||^2 / H, where h is that of the batch."""
    model = grown(build(decoder_dropout_out=0.5)).double().train()
    strengths = {"activation_regularization": 2.0, "temporal_activation_regularization": 0.7}
    each = TiedCrossEntropy(SimpleNamespace(target_dictionary=WORDS), sentence_avg, **strengths)
    each.begin_update(model)
    layers = []
    model.decoder.stack.register_forward_hook(lambda *call: layers.append(call[-1][0]))
    model.decoder.dropout_out.register_forward_hook(lambda *call: layers.append(call[-1]))
    first, padded = micro_batches(2)
    lengths = torch.tensor([5, 1, 6])  # of rows of six words
    padded["net_input"]["src_lengths"] = lengths
    for sample, words in ((first, [5, 5]), (padded, lengths)):
        layers.clear()
        torch.manual_seed(1)
        loss, _, logged = each(model, sample)
        copy.deepcopy(model)  # as --store-ema does after an update; a model that holds a graph's tensors refuses
        raw, dropped = (each.detach() for each in layers)
        rows = list(zip(raw.unbind(1), dropped.unbind(1), words, strict=True))
        penalty = sum(2.0 * float(h @ h) / 6 for _, row, length in rows for h in row[:length])
        penalty += sum(0.7 * float((b - a) @ (b - a)) / 6 for row, _, length in rows for a, b in pairwise(row[:length]))
        torch.manual_seed(1)
        unpenalised = model(**sample["net_input"], target=sample["target"]).loss
        assert float(loss - unpenalised) == pytest.approx(penalty, rel=1e-9)
        assert float(logged["penalty"]) == pytest.approx(penalty, rel=1e-9)
        assert torch.autograd.grad(loss - unpenalised, model.decoder.stack.weight_hh[0])[0].abs().sum() > 0
    each.begin_batch(is_dummy=True)
    assert float(each(model, sample)[0]) == 0


def test_a_short_last_group_has_it_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """The epoch's last update has fewer batches; what the update before left behind does not count."""
    model = projected()
    for samples in (micro_batches(4), micro_batches(1, seed=9)):
        found = gradient_of_update(model, [samples], True, monkeypatch)
        torch.testing.assert_close(found, gradient_of_definition(model, samples, True), rtol=1e-10, atol=1e-10)


def test_a_batch_fed_again_has_it_again() -> None:
    """As automatic mixed precision does after an overflow, when it has dropped the gradients."""
    model, each = projected(), criterion()
    (sample,) = micro_batches(1)
    losses = []
    for _ in range(2):
        model.zero_grad()
        each.begin_update(model)
        loss, _, _ = each(model, sample)
        loss.backward()
        losses.append(loss.detach())
    assert torch.equal(*losses)


def test_the_penalty_is_logged_apart() -> None:
    model = projected()
    samples = micro_batches(2)
    logs, plain_logs = [], []
    each = criterion()
    each.begin_update(model)
    for sample in samples:
        loss, _, log = each(model, sample)
        loss.backward()
        logs.append(log)
        plain_logs.append(criterion(0.0)(model, sample)[2])
    found, plain = logged(TiedCrossEntropy, logs), logged(TiedCrossEntropy, plain_logs)
    assert "penalty" not in plain
    assert {name: found[name] for name in plain} == plain  # loss and perplexity are without it
    assert model.output.projection is not None
    penalty = LAMBDA / 2 * float(model.output.projection.weight.detach().pow(2).sum())
    size = sum(sample["nsentences"] for sample in samples)
    assert found["penalty"] == pytest.approx(penalty / size / math.log(2), rel=1e-5)
    # and summed over processes it is the same
    summed = {name: sum(log[name] for log in logs) for name in logs[0]}
    assert logged(TiedCrossEntropy, [summed]) == pytest.approx(found)


def test_validation_has_no_penalty() -> None:
    model = projected().eval()
    (sample,) = micro_batches(1)
    loss, _, log = criterion()(model, sample)
    assert "penalty" not in log
    assert torch.equal(loss, criterion(0.0)(model, sample)[0])


def test_half_precision_sums_squares_in_float32() -> None:
    model = build(projection=True, decoder_hidden_size=64, decoder_embed_dim=64).half()
    assert model.output.projection is not None
    with torch.no_grad():
        model.output.projection.weight.fill_(32.0)  # 4096 squares of 1024: 64 times the largest number
    penalty = criterion()._penalty(model, 1)
    assert penalty.dtype == torch.float32
    assert penalty.item() == pytest.approx(LAMBDA / 2 * 4096 * 1024)


def penalty(name: str, model: Any) -> torch.Tensor:
    """With its options' defaults."""
    each = REGULARIZERS[name]
    return each(model, 1.0, **{option: default for option, (default, _) in each.options.items()})


of_weights = pytest.mark.parametrize("name", [name for name, each in REGULARIZERS.items() if each.added_to != "batch"])


@of_weights
def test_penalties_of_weights_are_in_float32(name: str) -> None:
    half = build(projection=True).half()
    with torch.no_grad():
        half.output.table.weight.fill_(64.0)  # a sum of squares overflows
    expected = penalty(name, copy.deepcopy(half).double())
    for model, autocast in ((half, False), (copy.deepcopy(half).float(), True)):
        with torch.autocast("cpu", dtype=torch.float16, enabled=autocast):
            found = penalty(name, model)
        assert found.dtype == torch.float32
        torch.testing.assert_close(found.double(), expected)


@of_weights
def test_the_gradient_of_a_penalty_is_its_slope_and_finite_at_the_row_of_padding(name: str) -> None:
    model, slopes = projected(), []
    weights = list(model.parameters())
    with torch.no_grad():
        model.output.table.weight[WORDS.pad()] = 0.0
    gradients = torch.autograd.grad(penalty(name, model), weights, allow_unused=True, materialize_grads=True)
    assert all(each.isfinite().all() for each in gradients)
    directions = [torch.randn_like(each) * each.ne(0) for each in weights]
    with torch.no_grad():
        for sign in (1e-5, -1e-5):
            moved = copy.deepcopy(model)
            for each, direction in zip(moved.parameters(), directions, strict=True):
                each += sign * direction
            slopes.append(penalty(name, moved) / sign / 2)
    expected = sum((gradient * direction).sum() for gradient, direction in zip(gradients, directions, strict=True))
    torch.testing.assert_close(sum(slopes), expected, rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"name": "my-penalty"}, "needs names of options, of letters, digits and _; got 'my-penalty'. Use"),
        ({"name": "class"}, "needs names of options, .*; got 'class'. Use"),
        ({"name": "label_smoothing"}, "needs options of unused names; got 'label_smoothing'. Use another name"),
        ({"name": "mine", "options": {"norm_target": (1.0, "")}}, "options of unused names; got 'norm_target'. Use"),
    ],
)
def test_options_that_a_penalty_cannot_have(fields: dict[str, Any], message: str) -> None:
    before = list(REGULARIZERS)
    for _ in range(2):  # and the second is as the first
        with pytest.raises(ValueError, match=message):
            register_regularizer(Regularizer(summary="", source="", penalty=lambda model: None, **fields))
    assert list(REGULARIZERS) == before


def test_another_place_of_a_penalty_is_refused() -> None:
    elsewhere: Any = "token"
    with pytest.raises(ValueError, match="^regularizer: needs one of update, mean, batch as added_to; got 'token'"):
        Regularizer(name="mine", summary="", source="", penalty=lambda model: None, added_to=elsewhere)


def test_a_penalty_without_weights_says_so_whoever_wrote_it() -> None:
    mine = Regularizer(name="mine", summary="", source="", penalty=lambda model: None)
    with pytest.raises(ValueError, match="--mine: needs a model with the .*; got 0.5 for one without. Leave it out."):
        mine(torch.nn.Linear(2, 3), 0.5)


def test_a_penalty_of_rows_takes_a_table_alone() -> None:
    model = projected()
    assert penalty("cosine_regularization", model.output.table) == penalty("cosine_regularization", model)


def test_a_row_without_a_direction_is_at_right_angles_to_all() -> None:
    table = SharedEmbedding(5, 4, None).double()
    with torch.no_grad():
        table.weight[2] = 0.0
        table.weight[3] *= 1e-3
    rows = torch.stack([row / row.norm().clamp(min=1e-3) for row in table.weight])
    expected = ((rows @ rows.t()).sum() - rows.square().sum()) / 25
    torch.testing.assert_close(penalty("cosine_regularization", table), expected)


@pytest.mark.parametrize("name", ["cosine_regularization", "projection_regularization", "l2_regularization"])
def test_a_module_without_such_weights_is_refused(name: str) -> None:
    module = torch.nn.Linear(2, 3).requires_grad_(False)
    flag = "--" + name.replace("_", "-")
    with pytest.raises(ValueError, match=f"{flag}: needs .*; got 0.25 for one without"):
        REGULARIZERS[name](module, 0.25)


def test_a_model_without_recurrent_layers_is_refused() -> None:
    each = TiedCrossEntropy(SimpleNamespace(target_dictionary=WORDS), True, activation_regularization=2.0)
    with pytest.raises(ValueError, match="--activation-regularization: needs a recurrent language model; got 2.0 for"):
        each.begin_update(build("feedforward_lm"))


def test_a_flags_help_is_the_penaltys_summary() -> None:
    fields = CRITERION_DATACLASS_REGISTRY["tied_cross_entropy"].__dataclass_fields__
    assert {name: fields[name].metadata["help"] for name in REGULARIZERS} == {
        name: each.summary for name, each in REGULARIZERS.items()
    }
    assert fields["norm_target"].default == 1.0


@pytest.mark.parametrize("value", [-0.15, float("nan")])
def test_a_strength_below_zero_is_refused(value: float) -> None:
    with pytest.raises(ValueError, match=f"--projection-regularization: needs a finite value, .*; got {value}. Use"):
        criterion(value)


def test_options_of_a_penalty_alone_are_refused() -> None:
    task = SimpleNamespace(target_dictionary=WORDS)
    with pytest.raises(ValueError, match="--norm-target: needs --norm-regularization; got 2.0 alone"):
        TiedCrossEntropy(task, True, norm_target=2.0)
    of_norms, model = REGULARIZERS["norm_regularization"], build()
    assert of_norms(model, 0.5) == of_norms(model, 0.5, norm_target=1.0), "its default"
    with pytest.raises(ValueError, match="--cosine-regularization: needs an output layer .* by a table; got 0.7"):
        REGULARIZERS["cosine_regularization"](build(output_layer="tree"), 0.7)


@pytest.mark.parametrize("set_to_none", [True, False])
def test_a_penalty_is_there_once_whatever_the_gradients_start_from(set_to_none: bool) -> None:
    """Through fairseq's task: an update of two batches, which is repeated."""
    model, each = projected(), criterion(sentence_avg=False)
    logs = []
    for _ in range(2):
        model.zero_grad(set_to_none=set_to_none)
        each.begin_update(model)
        logs += [task_step(model, each, sample, is_dummy=False) for sample in micro_batches(2)]
    weight = model.output.projection.weight.detach()
    share = LAMBDA / 2 * float(weight.pow(2).sum())
    assert [float(log["penalty"]) for log in logs] == pytest.approx([share, 0.0, share, 0.0])


def test_a_process_whose_only_batch_is_a_dummy_has_its_share() -> None:
    """A dummy's words have no gradient; fairseq gives one to a process that has run out of data."""
    model, each = projected(), criterion(sentence_avg=False, mu=MU)
    each.begin_update(model)
    task_step(model, each, micro_batches(1)[0], is_dummy=True)
    weight = model.output.projection.weight
    torch.testing.assert_close(weight.grad, LAMBDA * weight.detach())
    assert not model.decoder.embed_tokens.weight.grad.any()
    model.zero_grad()
    task_step(model, each, micro_batches(1)[0], is_dummy=False)
    assert model.decoder.embed_tokens.weight.grad.any()


def task_step(model: StreamLM, each: TiedCrossEntropy, sample: dict[str, Any], *, is_dummy: bool) -> dict[str, Any]:
    """fairseq's step with a batch; returns what is logged."""
    optimizer = SimpleNamespace(backward=lambda loss: loss.backward())
    return FairseqTask.train_step(SimpleNamespace(), sample, model, each, optimizer, 1, is_dummy)[2]


def test_the_trainer_says_when_an_update_begins(
    lm_data: Path, train: InProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun = []
    monkeypatch.setattr(TiedCrossEntropy, "begin_update", lambda self, model: begun.append(1))
    flags = "--arch zaremba_lm_small_pr --batch-size 4 --tokens-per-sample 5 --update-freq 2 --max-update 3 --no-save"
    train(lm_data, *flags.split(), "--decoder-hidden-size", 8, "--decoder-embed-dim", 8, "--save-dir", tmp_path)
    assert len(begun) == 3


TABLES = [f"decoder.{name}.weight" for name in ("embed_tokens", "output", "output_projection")]


@pytest.mark.parametrize("arch", ["tied_transformer_lm", "zaremba_lm_small_wt"])
def test_unit_rows_have_norm_one_after_each_update(arch: str, lm_data: Path, train: InProcess, tmp_path: Path) -> None:
    flags = "--unit-rows --optimizer adam --lr 0.05 --batch-size 4 --max-update 3 --no-epoch-checkpoints"
    flags += " --decoder-embed-dim 8 --tokens-per-sample 5 --task language_modeling --criterion tied_cross_entropy"
    sizes = "--decoder-attention-heads 2" if "transformer" in arch else "--decoder-hidden-size 8"
    train(lm_data, "--arch", arch, *flags.split(), *sizes.split(), "--save-dir", tmp_path)
    state = torch.load(tmp_path / "checkpoint_last.pt", weights_only=True)["model"]
    tables = [entry for name, entry in state.items() if name in TABLES]
    for table in tables:
        norms = torch.cat((table[: WORDS.pad()], table[WORDS.pad() + 1 :])).norm(dim=1)
        torch.testing.assert_close(norms, torch.ones_like(norms))
    assert tables
    model = build(unit_rows=True).double()
    model.end_update()
    norms = model.decoder.embed_tokens.weight.detach()[WORDS.pad() + 1 :].norm(dim=1)
    torch.testing.assert_close(norms, torch.ones_like(norms), rtol=1e-14, atol=0)
    for half, dtype in (("fp16", torch.float16), ("bf16", torch.bfloat16)):
        with pytest.raises(ValueError, match=f"needs weights in one .*; got --{half}. Use --memory-efficient-{half}"):
            model.to(dtype).end_update(are_copies=True)


def test_unit_rows_leave_frozen_tables_alone() -> None:
    """Pretrained rows that are not trained keep their lengths; the output's own table has norm 1."""
    frozen = {"decoder_freeze_embed": True, "share_decoder_input_output_embed": False}
    model = build(unit_rows=True, **frozen)
    before = model.decoder.embed_tokens.weight.detach()[WORDS.pad() + 1 :].norm(dim=1)
    assert not torch.allclose(before, torch.ones_like(before), atol=0.01)
    rows = model.decoder.embed_tokens.weight.clone()
    model.end_update()
    assert torch.equal(model.decoder.embed_tokens.weight, rows)
    trained = model.output.weight[WORDS.pad() + 1 :].norm(dim=1)
    torch.testing.assert_close(trained, torch.ones_like(trained))
