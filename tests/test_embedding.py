"""Sharing by identity and by behaviour, the output bias, initialisation, and cached norms."""

import copy
import functools
import inspect
import tempfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from fairseq.models.ema.ema import EMA
from fairseq.optim.adam import Adam
from torch import Tensor, nn
from torch.distributed.fsdp import fully_shard, register_fsdp_forward_method
from torch.func import functional_call

from fairseq_tiedemb.checkpoints.averages import average
from fairseq_tiedemb.constants import Constants
from fairseq_tiedemb.embedding import SharedEmbedding
from fairseq_tiedemb.losses import LossOptions
from fairseq_tiedemb.sharing import SHARING_METHODS, SharingMethod

from .crossing import crossed
from .gradients import assert_same_gradients
from .models.common import grown
from .processes import in_two_processes
from .travels import TRAVELS

PAD = 1
every_method = pytest.mark.parametrize("method", SHARING_METHODS)
CONSTANTS = Constants(embedding_scale=1.5, logit_scale=0.7, logit_soft_cap=2.0)


@torch.no_grad()
def divides_by_norm(method: str) -> bool:
    """Whether rows of twice the length have other than twice the vectors, or other than twice the products with h."""
    rows, h = torch.rand(7, 4) + 1, torch.stack((torch.ones(4), torch.zeros(4)))
    found = []
    for factor in (1, 2):
        table = SharedEmbedding(7, 4, None, method=method, weight=torch.nn.Parameter(factor * rows))
        first, without_features = table.scores(h)
        found.append(torch.cat((table.embed(torch.arange(7)).flatten(), first - without_features)) / factor)
    return not torch.allclose(*found)


class TwoPlaces(torch.nn.Module):
    """The smallest model that shares: one table in two places."""

    def __init__(self, method: str = "plain"):
        super().__init__()
        self.source = SharedEmbedding(7, 4, PAD, method=method, bias=True)
        self.output = self.source

    def forward(self, words_N: Tensor) -> Tensor:
        return F.cross_entropy(self.output.scores(self.source(words_N).tanh()), words_N.roll(1))


def through_averaging(model: TwoPlaces) -> TwoPlaces:
    with tempfile.TemporaryDirectory() as folder:
        paths = [Path(folder) / name for name in ("below.pt", "above.pt")]
        for path, step in zip(paths, (-0.25, 0.25), strict=True):
            torch.save({"model": moved(model, step).state_dict()}, path)
        state = average(paths)["model"]
    fresh = TwoPlaces(model.source.method)
    fresh.load_state_dict(state)
    return fresh


def through_ema(model: TwoPlaces) -> TwoPlaces:
    config = SimpleNamespace(ema_decay=0.5, ema_seed_model=None, ema_fp32=False, ema_start_update=0, ema_update_freq=1)
    ema = EMA(moved(model, -0.25), config)
    ema.step(moved(model, 0.25), 1)
    return ema.get_model().requires_grad_()


def moved(model: TwoPlaces, step: float) -> TwoPlaces:
    """A copy with this added to every parameter."""
    model = copy.deepcopy(model)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += step
    return model


@pytest.mark.parametrize(("travel", "method"), crossed([*TRAVELS, through_averaging, through_ema], SHARING_METHODS))
def test_sharing_survives(travel, method: str) -> None:
    original = TwoPlaces(method)
    model = travel(copy.deepcopy(original))
    assert model.source.weight is model.output.weight
    assert len([*model.parameters()]) == len([*original.parameters()])
    torch.testing.assert_close(model.source.weight.float(), original.source.weight, atol=1e-3, rtol=1e-3)
    with torch.no_grad():  # written through one role, read through the other
        model.source.weight[3] = torch.tensor([1.0, 0.0, 0.0, 0.0])
        scores = model.output.scores(torch.eye(4, dtype=model.output.weight.dtype))
    feature = 2 if method == "half-swap" else 0
    assert scores[feature, 3] > 0.4
    assert scores[:, 3].index_fill(0, torch.tensor(feature), 0).abs().max() < 1e-6 or method == "distance"
    assert (original.source.weight[3] != torch.tensor([1.0, 0.0, 0.0, 0.0])).any()


def test_data_parallel_gradients_are_those_of_both_processes(tmp_path: Path) -> None:
    in_two_processes(_train_in_parallel, tmp_path)


def _train_in_parallel(rank: int) -> None:
    words = torch.tensor([[2, 3, 3, 5], [4, 2, 6, 3]])
    for method in SHARING_METHODS:
        model = TwoPlaces(method).double()
        state = model.state_dict()
        torch.distributed.broadcast(state["source.weight"], 0)
        parallel = torch.nn.parallel.DistributedDataParallel(model)
        parallel(words[rank]).backward()
        assert model.source.weight is model.output.weight
        alone = copy.deepcopy(model)
        alone.zero_grad()
        (sum(map(alone, words)) / 2).backward()
        for name, parameter in alone.named_parameters():
            torch.testing.assert_close(model.get_parameter(name).grad, parameter.grad)


@pytest.mark.parametrize("own_group", [False, True], ids=["with the model", "table by itself"])
def test_sharded_gradients_are_those_of_both_processes(own_group: bool, tmp_path: Path) -> None:
    in_two_processes(functools.partial(_train_sharded, own_group=own_group), tmp_path)


def _train_sharded(rank: int, own_group: bool) -> None:
    words = torch.tensor([[2, 3, 3, 5], [4, 2, 6, 3]])
    for method in SHARING_METHODS:
        model = TwoPlaces(method).double()
        for parameter in model.parameters():
            torch.distributed.broadcast(parameter.detach(), 0)
        alone = copy.deepcopy(model)
        (sum(map(alone, words)) / 2).backward()
        scalars = {parameter for parameter in model.parameters() if parameter.dim() == 0}
        if scalars and "ignored_params" not in inspect.signature(fully_shard).parameters:  # torch < 2.7
            continue
        options = {"ignored_params": scalars} if scalars else {}
        if own_group:
            fully_shard(model.source, **options)
            register_fsdp_forward_method(model.source, "scores")
        fully_shard(model, **options)
        model(words[rank]).backward()
        for name, parameter in model.named_parameters():
            assert parameter.grad is not None
            if parameter in scalars:
                torch.distributed.all_reduce(parameter.grad)
                whole = parameter.grad / 2
            else:
                assert parameter.grad.to_local().shape != parameter.shape
                whole = parameter.grad.full_tensor()
            torch.testing.assert_close(whole, alone.get_parameter(name).grad)


@every_method
def test_output_bias_is_added(method: str) -> None:
    table, features = SharedEmbedding(7, 4, PAD, method=method, bias=True), torch.randn(2, 4)
    before = table.scores(features)
    with torch.no_grad():
        table.bias.copy_(torch.arange(7.0))
    torch.testing.assert_close(table.scores(features) - before, torch.arange(7.0).expand(2, 7))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64])
def test_a_bias_has_the_precision_of_the_given_rows(dtype: torch.dtype) -> None:
    table = SharedEmbedding(7, 4, PAD, bias=True, weight=torch.nn.Parameter(torch.ones(7, 4, dtype=dtype)))
    assert table.scores(torch.ones(2, 4, dtype=dtype)).dtype == dtype


def test_one_word_has_one_vector(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever shape the factor of the vectors has."""
    factor = SharingMethod(name="mine", summary="", source="", input_scale=lambda n: torch.full((1,), 2.0))
    monkeypatch.setitem(SHARING_METHODS, "mine", factor)
    table = SharedEmbedding(7, 4, PAD, method="mine")
    assert torch.equal(table.embed(torch.tensor(3)), 2 * table.weight[3])


def test_a_table_is_made_of_the_parameters_of_a_module() -> None:
    rows, scores, h = torch.nn.Embedding(9, 4, padding_idx=2), torch.nn.Linear(4, 9), torch.randn(3, 4)
    table = SharedEmbedding.from_module(rows, method="cosine", constants=Constants(embedding_scale=2.0))
    assert table.weight is rows.weight
    assert (table.padding_idx, table.method, table.bias) == (2, "cosine", None)
    assert torch.equal(table(torch.tensor([1, 5])), 2 * rows.weight[[1, 5]])
    output = SharedEmbedding.from_module(scores)
    torch.testing.assert_close(output.scores(h), scores(h))
    assert [*output.parameters()] == [scores.weight, scores.bias]
    with pytest.raises(ValueError, match="module: needs an nn.Embedding or nn.Linear; got NoneType"):
        SharedEmbedding.from_module(None)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="module: needs an nn.Embedding or nn.Linear; got Conv1d"):
        SharedEmbedding.from_module(torch.nn.Conv1d(1, 1, 1))
    halved = type("Halved", (torch.nn.Embedding,), {"forward": lambda self, tokens: self.weight[tokens] / 2})(9, 4)
    with pytest.raises(ValueError, match="module: needs an nn.Embedding or nn.Linear; got Halved. Use its weight"):
        SharedEmbedding.from_module(halved)
    table = SharedEmbedding.from_module(halved, constants=Constants(embedding_scale=0.5))
    assert torch.equal(table(torch.tensor([1, 5])), halved(torch.tensor([1, 5])))
    options: list[dict[str, Any]] = [{"max_norm": 2.5}, {"scale_grad_by_freq": True}, {"sparse": True}]
    for option in options:
        [(name, value)] = option.items()
        with pytest.raises(ValueError, match=f"module: needs an nn.Embedding without {name}; got {value}"):
            SharedEmbedding.from_module(torch.nn.Embedding(9, 4, **option))


@every_method
def test_a_table_of_a_module_is_where_the_module_is(method: str) -> None:
    table = SharedEmbedding.from_module(torch.nn.Embedding(5, 4, device="meta"), method=method)
    assert {parameter.device.type for parameter in table.parameters()} == {"meta"}


@every_method
def test_vectors_and_scores_on_a_device_without_numbers(method: str) -> None:
    with torch.device("meta"):
        table = SharedEmbedding(7, 4, PAD, method=method, bias=True)
        words = torch.tensor([2, 3, 5])
        scores, loss = table.scores(table.embed(words[None])), table.loss(table.embed(words), words).loss
    loss.backward()
    assert table.weight.grad.shape == (7, 4)
    assert (scores.device.type, scores.shape, scores.dtype) == ("meta", (1, 3, 7), torch.float32)
    assert (loss.device.type, loss.shape) == ("meta", ())


@every_method
def test_a_table_without_numbers_gets_those_of_a_new_one(method: str) -> None:
    with torch.device("meta"):
        table = SharedEmbedding(7, 4, PAD, method=method, bias=True)
    table = table.to_empty(device="cpu")
    for parameter in table.parameters():
        nn.init.constant_(parameter, 7.5)
    first = {}
    for key, each in (("again", table), ("new", SharedEmbedding(7, 4, PAD, method=method, bias=True))):
        torch.manual_seed(1)
        each.reset_parameters(None)
        first[key] = each.state_dict()
    torch.testing.assert_close(first["again"], first["new"], rtol=0, atol=0)
    new = SharedEmbedding(7, 4, PAD, method=method).method_parameters
    torch.testing.assert_close(dict(table.method_parameters), dict(new), rtol=0, atol=0)


@every_method
def test_an_exported_graph_scores_as_the_model_does(method: str) -> None:
    model, words = grown(TwoPlaces(method)), torch.tensor([2, 3, 3, PAD])
    exported = torch.export.export(model, (words,)).module()
    torch.testing.assert_close(exported(words.roll(1)), model(words.roll(1)))


def test_padding_row_starts_at_zero_and_gets_no_gradient_as_an_input() -> None:
    table = SharedEmbedding(7, 4, PAD)
    table.embed(torch.tensor([PAD, 2])).sum().backward()
    assert table.weight.grad.abs().sum(1).nonzero().flatten().tolist() == [2]


@every_method
def test_existing_rows_are_used_as_they_are(method: str) -> None:
    rows = torch.nn.Parameter(torch.randn(7, 4))
    before, drawn = rows.detach().clone(), torch.get_rng_state()
    table = SharedEmbedding(7, 4, PAD, method=method, weight=rows)
    assert table.weight is rows
    assert torch.equal(rows, before)
    assert torch.equal(torch.get_rng_state(), drawn)


@every_method
def test_rows_start_with_norm_one_where_a_method_divides_by_it(method: str) -> None:
    table = SharedEmbedding(500, 64, PAD, method=method, std=0.01)
    expected = 1.0 if divides_by_norm(method) else 0.08
    assert table.weight.norm(dim=1).mean().item() == pytest.approx(expected, rel=0.1)


@every_method
def test_rows_drawn_anew_have_norm_one_where_a_method_divides_by_it(method: str) -> None:
    table = SharedEmbedding(500, 64, PAD, method=method, std=0.5)
    before = table.weight.detach().clone()
    table.reset_rows_of_norm_one()
    assert not table.weight[PAD].any()
    if not divides_by_norm(method):
        assert torch.equal(table.weight, before)
    else:
        assert table.weight.norm(dim=1).mean().item() == pytest.approx(1.0, rel=0.1)
        assert table.weight.mean().abs() < 0.01


@every_method
def test_second_derivatives_are_finite_at_the_row_of_padding(method: str) -> None:
    table = SharedEmbedding(6, 4, PAD, method=method)
    (gradient,) = torch.autograd.grad(table.scores(torch.randn(2, 4)).square().sum(), table.weight, create_graph=True)
    assert torch.autograd.grad(gradient.square().sum(), table.weight)[0].isfinite().all()


def test_rows_start_with_the_deviation_that_is_asked_for() -> None:
    assert SharedEmbedding(500, 64, PAD).weight.std().item() == pytest.approx(0.01, rel=0.1)
    assert SharedEmbedding(500, 64, PAD, std=0.5).weight.std().item() == pytest.approx(0.5, rel=0.1)


def kept_and_computed(table: SharedEmbedding, features: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Scores by what a table keeps, and by a copy that keeps nothing."""
    if table.training or not table.kept.keeps:
        table.eval().keep()
    fresh = copy.deepcopy(table)
    fresh.keep(False)
    with torch.no_grad():
        return table.scores(features), fresh.scores(features)


@every_method
def test_kept_norms_follow_every_change_of_the_table(method: str) -> None:
    table, features = SharedEmbedding(7, 4, PAD, method=method, bias=True), torch.randn(2, 4)
    other = SharedEmbedding(7, 4, PAD, method=method, bias=True)
    torch.testing.assert_close(*kept_and_computed(table, features))
    with torch.no_grad():
        table.weight.mul_(2.0)
        table.bias.add_(1.0)
    torch.testing.assert_close(*kept_and_computed(table, features))
    optimizer = Adam(table.parameters(), lr=0.1)  # writes through `p.data`
    table.train()
    table.scores(features).logsumexp(1).sum().backward()
    optimizer.step()
    torch.testing.assert_close(*kept_and_computed(table, features))
    table.load_state_dict(other.state_dict())
    torch.testing.assert_close(*kept_and_computed(table, features))
    for _ in range(2):  # both of version 0
        table.weight, table.bias = (torch.nn.Parameter(each + 1) for each in (table.weight, table.bias))
        torch.testing.assert_close(*kept_and_computed(table, features))


@every_method
def test_rows_that_another_module_computes_are_never_those_of_before(method: str) -> None:
    """Each is a new tensor of version 0, often where the last one was."""
    table, features = SharedEmbedding(7, 4, PAD, method=method), torch.randn(2, 4)
    rows = table.weight.detach()
    table.eval().keep()
    with torch.no_grad():
        for factor in range(20):
            scores = functional_call(Scores(table), {"table.weight": rows * factor}, (features,))
            fresh = SharedEmbedding(7, 4, PAD, method=method, weight=torch.nn.Parameter(rows * factor))
            fresh.load_state_dict(table.state_dict() | {"weight": rows * factor})
            torch.testing.assert_close(scores, fresh.scores(features))


class Scores(torch.nn.Module):
    def __init__(self, table: SharedEmbedding):
        super().__init__()
        self.table = table

    def forward(self, features: torch.Tensor) -> torch.Tensor:
        return self.table.scores(features)


@torch.no_grad()
@pytest.mark.parametrize("method", ["plain", "cosine"])
def test_a_table_that_keeps_scores_under_autocast_and_in_a_graph(method: str) -> None:
    table, features = SharedEmbedding(40, 32, PAD, method=method).eval(), torch.randn(3, 32)
    expected = table.scores(features)
    table.keep()
    torch.testing.assert_close(table.scores(features), expected)
    compiled = torch.compile(table.scores, backend="aot_eager", fullgraph=True)
    torch.testing.assert_close(compiled(features), expected)
    with torch.autocast("cpu", torch.bfloat16):
        scores = table.scores(features.bfloat16())
    assert scores.dtype == torch.bfloat16
    torch.testing.assert_close(scores.float(), expected, rtol=0.05, atol=0.02 * expected.abs().max().item())


def count_norms(table: SharedEmbedding) -> list[int]:
    """Grows by one whenever the table computes its norms."""
    calls: list[int] = []
    computed = table.squared_norms
    table.squared_norms = lambda: calls.append(1) or computed()  # type: ignore[method-assign]
    return calls


@torch.no_grad()
def test_norms_are_kept_only_where_they_are_to_be() -> None:
    table, features = SharedEmbedding(7, 4, PAD, method="cosine").eval(), torch.ones(1, 4)
    calls = count_norms(table)
    for keep, expected in ((False, 3), (True, 1)):
        calls.clear()
        table.keep(keep)
        for _ in range(3):
            table.scores(features)
        assert len(calls) == expected
    table.train()
    table.eval()
    table.scores(features)
    table.scores(features)
    assert len(calls) == 3


@torch.no_grad()
def test_a_model_in_evaluation_never_scores_by_stale_norms() -> None:
    """`weight.data` changes a tensor behind its version counter, as fairseq's optimisers do."""
    table, features = SharedEmbedding(7, 4, PAD, method="cosine").eval(), torch.randn(2, 4)
    expected = table.scores(features)
    table.weight.data.mul_(3.0)
    torch.testing.assert_close(table.scores(features), expected)


@every_method
def test_inference_mode(method: str) -> None:
    with torch.inference_mode():
        table, features = SharedEmbedding(7, 4, PAD, method=method, bias=True), torch.randn(1, 4)
        torch.testing.assert_close(*kept_and_computed(table, features))
        table.weight[3] *= 2  # which no version tells
        torch.testing.assert_close(*kept_and_computed(table, features))


@every_method
def test_scores_are_a_fresh_tensor(method: str) -> None:
    """fairseq's generator divides scores by the temperature in place."""
    table, features = SharedEmbedding(7, 4, PAD, method=method, bias=True), torch.randn(2, 4)
    torch.nn.init.ones_(table.bias)
    first, expected = kept_and_computed(table, features)
    first.div_(7.0)
    torch.testing.assert_close(kept_and_computed(table, features)[0], expected)


def test_repr_says_what_it_is() -> None:
    assert repr(SharedEmbedding(7, 4, PAD, method="cosine")) == "SharedEmbedding(7, 4, method=cosine, bias=False)"


def test_a_frozen_table_scores_by_one_product() -> None:
    """torch multiplies a transposed (B, 1, D) row by row where the table needs no gradient."""
    table, features = SharedEmbedding(7, 4, PAD).requires_grad_(False), torch.randn(1, 5, 4).transpose(0, 1)
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        scores = table.scores(features)
    assert "aten::bmm" not in {event.key for event in profile.key_averages()}
    torch.testing.assert_close(scores, features @ table.weight.t())


@pytest.mark.parametrize("method", ["fixnorm", "half-swap"])
def test_a_table_without_a_feature_map_does_not_score(method: str) -> None:
    table = SharedEmbedding(5, 4, None, method=method, scores=False)
    assert table.embed(torch.tensor([3])).shape == (1, 4)
    with pytest.raises(ValueError, match=f"features: needs a table that scores words; got {method} with scores=False"):
        table.scores(torch.ones(2, 4))


def test_an_unknown_method_is_refused_by_its_name_and_no_flag() -> None:
    with pytest.raises(ValueError, match="^sharing method: needs .*; got 'cosinus'. Use one of: plain, l2-input"):
        SharedEmbedding(7, 4, PAD, method="cosinus")


@every_method
def test_rows_of_words_score_as_the_whole_table_does(method: str) -> None:
    table = SharedEmbedding(9, 4, PAD, method=method, bias=True, embeds=False, constants=CONSTANTS).double()
    grown(table, std=1.0)
    features, words = torch.randn(5, 4).double(), torch.tensor([3, PAD, 8, 3, 0])
    expected = table.scores(features)[:, words]
    rows, mapped = table.rows(words), table.mapped(features)
    torch.testing.assert_close(rows.scores(mapped), expected)
    torch.testing.assert_close(rows.scores_one_by_one(mapped), expected.diagonal())
    assert_same_gradients(rows.scores(mapped).square().sum(), expected.square().sum(), table.parameters())


@every_method
def test_constants_are_those_of_their_equation(method: str) -> None:
    """A scale of the vectors, one of the products alone, and a soft cap of the sum."""
    table = SharedEmbedding(9, 4, PAD, method=method, bias=True).double()
    grown(table, std=1.0)
    features, words = torch.randn(5, 4).double(), torch.arange(9)
    of_products, rest, vectors = table.scores(features), table.scores(0 * features), table.embed(words)
    table.constants = CONSTANTS
    expected = 2.0 * torch.tanh((0.7 * (of_products - rest) + rest) / 2.0)
    torch.testing.assert_close(table.scores(features), expected)
    torch.testing.assert_close(table.embed(words), 1.5 * vectors)


@every_method
@pytest.mark.parametrize("scale", [1.0, 5.0])
def test_the_gradient_of_the_input_is_scaled_and_nothing_else(method: str, scale: float) -> None:
    """Against an input and an output table of the same rows, whose gradients are the two parts."""
    tied = grown(SharedEmbedding(9, 4, PAD, method=method).double(), std=1.0)
    apart = [copy.deepcopy(tied), copy.deepcopy(tied)]
    tied.constants = Constants(input_gradient_scale=scale)
    words, target = torch.tensor([3, 2, 8, 3, 5]), torch.tensor([2, 8, 3, 5, 4])

    def loss(embeds: SharedEmbedding, scores: SharedEmbedding) -> torch.Tensor:
        return scores.loss(embeds.embed(words).tanh(), target).loss

    torch.testing.assert_close(loss(tied, tied), loss(*apart))
    [found] = torch.autograd.grad(loss(tied, tied), [tied.weight])
    of_input, of_output = torch.autograd.grad(loss(*apart), [each.weight for each in apart])
    torch.testing.assert_close(found, scale * of_input + of_output)
    assert of_input.any()
    assert of_output.any()
    with torch.no_grad():
        assert not tied.embed(words).requires_grad


@every_method
def test_words_that_never_come_have_no_share_of_the_normaliser(method: str) -> None:
    table = SharedEmbedding(9, 4, PAD, method=method, bias=True, constants=CONSTANTS).double()
    grown(table, std=1.0)
    features, target, never = torch.randn(5, 4).double(), torch.tensor([3, 2, 8, 3, 5]), torch.zeros(9, dtype=bool)
    never[[0, PAD]] = True
    scores = table.scores(features)
    scores[:, [0, PAD]] = -torch.inf
    expected = F.cross_entropy(scores, target, reduction="sum")
    torch.testing.assert_close(table.loss(features, target, never_V=never).loss, expected)


def test_words_without_a_probability_get_no_part_of_the_target() -> None:
    table = SharedEmbedding(9, 4, PAD)
    options = LossOptions(label_smoothing=0.25)
    with pytest.raises(ValueError, match=r"--label-smoothing: needs 0 with a mask of tokens .*; got 0.25"):
        table.loss(torch.randn(2, 4), torch.tensor([3, 2]), options, never_V=torch.arange(9) == PAD)


@pytest.mark.parametrize("method", ["plain", "distance"])
@pytest.mark.parametrize(("never", "got"), [([True], r"torch.bool \(1,\)"), ([0.0] * 9, r"torch.float32 \(9,\)")])
def test_a_mask_of_other_words_is_refused(method: str, never: list[Any], got: str) -> None:
    table = SharedEmbedding(9, 4, PAD, method=method)
    with pytest.raises(ValueError, match=f"never_V: needs 9 booleans, one per token; got {got}"):
        table.loss(torch.randn(2, 4), torch.tensor([3, 2]), never_V=torch.tensor(never))


def test_scores_of_half_precision_are_rounded_once() -> None:
    """Beyond float16's largest number, 65504, lies the product times the scale, but not the score."""
    table = SharedEmbedding(2, 1, None, method="scaled", bias=True, weight=nn.Parameter(torch.ones(2, 1))).half()
    with torch.no_grad():
        table.method_parameters["scale"].fill_(2.0)
        table.bias.fill_(-32768.0)
    assert table.scores(torch.tensor([[40000.0]]).half()).tolist() == [[47232.0] * 2]


def test_rows_of_half_precision_score_in_single() -> None:
    table = SharedEmbedding(9, 4, PAD, method="distance", bias=True).half()
    rows = table.rows(torch.tensor([3, 4]))
    assert rows.rows.dtype == torch.float16
    assert rows.scores(torch.randn(5, 4).half()).dtype == torch.float32


def test_scored_rows_multiply_by_the_linear_layers_of_trainings(monkeypatch: pytest.MonkeyPatch) -> None:
    table, calls = SharedEmbedding(5, 3, 1), []
    monkeypatch.setattr("torch.nn.functional.linear", lambda x, w: calls.append(len(x)) or x @ w.t())
    table.rows(torch.arange(4)).scores(torch.randn(2, 3))
    assert calls == [2]
