"""The lean loss against the plain computation: values, gradients, half precision, memory's shape."""

import copy
import math
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from fairseq.criterions.label_smoothed_cross_entropy import label_smoothed_nll_loss
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from fairseq_tiedemb import loss_by_rows, loss_by_words, losses, squared_norms
from fairseq_tiedemb.constants import Constants
from fairseq_tiedemb.embedding import SharedEmbedding
from fairseq_tiedemb.losses import LossOptions, output_loss
from fairseq_tiedemb.sharing import SHARING_METHODS

from . import reference
from .gradients import assert_same_gradients

every_method = pytest.mark.parametrize("method", SHARING_METHODS)
# Of every method label smoothing and z-loss together, and of one each of them.
METHODS = [(method, 0.1, 0.02) for method in SHARING_METHODS]
objectives = pytest.mark.parametrize(
    ("method", "epsilon", "z"), [*METHODS, ("cosine", 0.0, 0.0), ("cosine", 0.1, 0.0), ("distance", 0.0, 0.02)]
)


@pytest.fixture(autouse=True)
def _small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loss_by_rows, "ROWS", 3)  # seven words in three chunks, the last one short
    monkeypatch.setattr(loss_by_rows, "AT_ONCE", set())
    monkeypatch.setattr(squared_norms, "CACHED_ELEMENTS", 22)  # two rows of eleven scores, four rows of the table


@pytest.fixture(params=["rows", "even rows", "words"])
def by_rows_and_by_words(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "even rows":  # seven words in two chunks, the last one filled up
        monkeypatch.setattr("fairseq_tiedemb.products.EVEN_ROWS", {torch.float64, torch.float32, torch.bfloat16})
        monkeypatch.setattr("fairseq_tiedemb.products.EVEN", [(4, 4)])
    if request.param == "words":  # eleven words in three blocks, the last one short
        monkeypatch.setattr(loss_by_rows, "SCORES", 1)
        monkeypatch.setattr(losses, "BY_WORDS", {torch.float64, torch.float32, torch.bfloat16})
        monkeypatch.setattr(loss_by_words, "ELEMENTS", 1)
        monkeypatch.setattr(loss_by_words, "FEWEST_WORDS", 4)


both_ways = pytest.mark.usefixtures("by_rows_and_by_words")


def plain_loss(table: SharedEmbedding, features: Tensor, target: Tensor, epsilon: float, z: float = 0.0) -> Tensor:
    scores = table.scores(features).to(torch.promote_types(features.dtype, torch.float32))
    loss, _ = label_smoothed_nll_loss(F.log_softmax(scores, -1), target, epsilon)
    return loss + z * scores.logsumexp(-1).square().sum()


def case(
    method: str, bias: bool, shortest: float = 1e-4, embeds: bool = False
) -> tuple[SharedEmbedding, Tensor, Tensor]:
    table = SharedEmbedding(11, 5, 1, method=method, bias=bias, embeds=embeds)
    with torch.no_grad():
        table.weight.mul_(torch.rand(11, 1) + 0.5)
        # By default below the smallest norm that is divided by.
        table.weight[4] *= shortest
        if table.bias is not None:
            table.bias.normal_()
    features = torch.randn(7, 5, dtype=torch.float64, requires_grad=True)
    return table.double(), features, torch.tensor([2, 5, 5, 0, 10, 3, 9])


@both_ways
@pytest.mark.parametrize("reduce", [True, False])
@pytest.mark.parametrize("method", ["plain", "distance", "scaled-words"])
def test_a_soft_cap_has_the_gradients_of_the_plain_computation(method: str, reduce: bool) -> None:
    table, features, target = case(method, bias=True)
    table.constants = Constants(logit_scale=3.0, logit_soft_cap=0.5)
    found = table.loss(features, target, LossOptions(0.1, 0.02, reduce)).loss.sum()
    expected = plain_loss(table, features, target, 0.1, 0.02)
    assert_same_gradients(found, expected, [features, *table.parameters()])


@both_ways
@objectives
def test_values_against_the_equations(method: str, epsilon: float, z: float) -> None:
    table, features, target = case(method, bias=True)
    scores = table.scores(features).detach().numpy()
    words = zip(scores, target.tolist(), strict=True)
    pairs = [reference.smoothed_cross_entropy(row, word, epsilon) for row, word in words]
    penalty = z * sum(np.log(np.exp(row).sum()) ** 2 for row in scores)
    result = table.loss(features, target, LossOptions(epsilon, z))
    np.testing.assert_allclose(result.loss.item(), sum(loss for loss, _ in pairs) + penalty, rtol=1e-12)
    np.testing.assert_allclose(result.nll_loss.item(), sum(nll for _, nll in pairs), rtol=1e-12)
    assert not result.nll_loss.requires_grad
    torch.testing.assert_close(-table.log_prob(features, target).sum(), result.nll_loss)
    assert table.log_prob(features, target).requires_grad


@both_ways
@objectives
@pytest.mark.parametrize("bias", [False, True])
def test_gradients_are_those_of_the_plain_computation(method: str, epsilon: float, z: float, bias: bool) -> None:
    """Of a loss that is multiplied by something, too."""
    table, features, target = case(method, bias)
    found = table.loss(features, target, LossOptions(epsilon, z)).loss * 0.125
    expected = plain_loss(table, features, target, epsilon, z) * 0.125
    assert_same_gradients(found, expected, [features, *table.parameters()])


@both_ways
@objectives
@pytest.mark.parametrize("sign", [1, -1])
def test_one_number_a_word_and_gradients_of_weighted_words(method: str, epsilon: float, z: float, sign: int) -> None:
    table, features, target = case(method, bias=True)
    weights = sign * torch.rand(7, dtype=torch.float64)
    expected = torch.stack([plain_loss(table, features[n : n + 1], target[n : n + 1], epsilon, z) for n in range(7)])
    found = table.loss(features, target, LossOptions(epsilon, z, reduce=False)).loss
    torch.testing.assert_close(found, expected)
    assert_same_gradients(found @ weights, expected @ weights, [features, *table.parameters()])


@both_ways
def test_constants_of_half_precision_are_added_in_float32() -> None:
    offset, bias = torch.full((5,), 100.0).bfloat16(), torch.tensor([0.25, 0, 0, 0, 0]).bfloat16()
    zeros = torch.zeros(5, 3).bfloat16()
    loss = output_loss(zeros[:1], zeros, torch.tensor([0]), offset=offset, bias=bias).loss
    torch.testing.assert_close(loss, F.cross_entropy(bias[None].float(), torch.tensor([0])))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@every_method
def test_half_precision_is_as_exact_as_the_plain_computation(method: str, dtype: torch.dtype) -> None:
    """At most the plain computation's error in the same precision and four of its roundings."""
    # Divided by 3e-4, times `HALF_SCALE`, fp16 would overflow.
    exact, features, target = case(method, bias=True, shortest=0.02)
    half = SharedEmbedding(11, 5, 1, method=method, bias=True, embeds=False).to(dtype)
    half.load_state_dict(exact.state_dict())
    half_features = features.detach().to(dtype).requires_grad_()
    truth = torch.autograd.grad(plain_loss(exact, features, target, 0.1, 0.02), [features, exact.weight])
    inputs = [half_features, half.weight]
    theirs = torch.autograd.grad(plain_loss(half, half_features, target, 0.1, 0.02), inputs)
    ours = torch.autograd.grad(half.loss(half_features, target, LossOptions(0.1, 0.02)).loss, inputs)
    for our_grad, their_grad, true_grad in zip(ours, theirs, truth, strict=True):
        error, their_error = ((grad.double() - true_grad).abs().max() for grad in (our_grad, their_grad))
        assert our_grad.dtype == dtype
        assert error <= their_error + 4 * torch.finfo(dtype).eps * true_grad.abs().max()


@both_ways
def test_gradients_of_many_words_are_summed_in_float32() -> None:
    """In bfloat16 a sum of ones ends at 256."""
    table = SharedEmbedding(11, 5, 1, bias=True, std=0.0).bfloat16()
    table.loss(torch.ones(900, 5).bfloat16(), torch.full((900,), 4)).loss.backward()
    expected = torch.full((11,), 900 / 11)
    expected[4] -= 900
    torch.testing.assert_close(table.bias.grad.float(), expected, rtol=0.01, atol=0.0)
    torch.testing.assert_close(table.weight.grad.float(), expected.unsqueeze(1).expand(11, 5), rtol=0.01, atol=0.0)


def test_small_gradients_reach_the_loss_scaling_of_fp16() -> None:
    weight = torch.tensor([[0.0], [-17.0], [0.0]], dtype=torch.float16, requires_grad=True)
    features = torch.ones(1, 1, dtype=torch.float16)
    # The middle word has probability e^-17 / 2 = 2e-8, below fp16's smallest number; scaled it is 5e-6.
    (output_loss(features, weight, torch.tensor([0])).loss * 256.0).backward()
    torch.testing.assert_close(weight.grad[1].item(), 256.0 / (2 * math.exp(17) + 1), rtol=0.05, atol=0.0)


@pytest.mark.parametrize(
    ("rows", "words", "feature", "std", "options"),
    [
        (512, 8, 4.0, 0.0, LossOptions()),  # all rows of a part have one word
        (1100, 8, 4.0, 0.0, LossOptions()),
        (4, 8, 1.0, 600.0, LossOptions()),  # the table is large
        (512, 8, 1.0, 1.0, LossOptions(augmented_loss=1.0, augmented_temperature=0.01)),
        (512, 8, 4.0, 0.5, LossOptions(z_loss=0.5)),
    ],
)
def test_no_product_overflows_in_fp16(
    rows: int, words: int, feature: float, std: float, options: LossOptions, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loss_by_rows, "ROWS", 512)
    generator = torch.Generator().manual_seed(1)
    weight, features = torch.randn(words, 4, generator=generator).mul(std).half(), torch.full((rows, 4), feature).half()
    similar = torch.randn(rows, 4, generator=generator).half()
    found = []
    for double in (False, True):
        inputs = [
            each.detach().to(torch.double if double else torch.half).requires_grad_() for each in (weight, features)
        ]
        target = torch.zeros(rows, dtype=torch.long)
        loss = output_loss(inputs[1], inputs[0], target, similar_ND=similar.to(inputs[0].dtype), options=options).loss
        found.append(torch.autograd.grad(loss, inputs))
    for half, exact in zip(*found, strict=True):
        torch.testing.assert_close(half.double(), exact, rtol=0.01, atol=0.01 * float(exact.abs().max()))


def test_no_product_with_negative_numbers_overflows_in_fp16() -> None:
    weight, features = torch.zeros(8, 4).half(), torch.ones(4, 4).half().requires_grad_()
    weight[0] = -600.0
    output_loss(features, weight, torch.zeros(4, dtype=torch.long)).loss.backward()
    torch.testing.assert_close(features.grad, torch.full_like(features, 600.0))


def test_a_scale_of_zero_gets_a_gradient_in_fp16() -> None:
    scale = torch.tensor([1.0, 0.0, 2.0])
    gradients = []
    for dtype in (torch.half, torch.double):
        own = scale.clone().requires_grad_()
        table = torch.tensor([[1.0], [0.5], [-1.0]], dtype=dtype)
        output_loss(torch.ones(1, 1, dtype=dtype), table, torch.tensor([0]), scale=own).loss.backward()
        gradients.append(own.grad)
    torch.testing.assert_close(*gradients, rtol=0.01, atol=0.0)


@both_ways
@every_method
def test_autocast_multiplies_in_its_precision_and_adds_in_float32(method: str) -> None:
    exact, features, target = case(method, bias=True)
    table = copy.deepcopy(exact).float()
    truth = torch.autograd.grad(plain_loss(exact, features, target, 0.1), [features, exact.weight, exact.bias])
    half_features = features.detach().bfloat16().requires_grad_()
    inputs = [half_features, table.weight, table.bias]
    with torch.autocast("cpu", torch.bfloat16), Products() as products:
        loss = table.loss(half_features, target, LossOptions(0.1)).loss
    assert set(products.dtypes) == {torch.bfloat16}
    assert loss.dtype == torch.float32
    found = torch.autograd.grad(loss, inputs)
    assert [each.dtype for each in found] == [torch.bfloat16, torch.float32, torch.float32]
    for ours, true_grad in zip(found, truth, strict=True):
        assert (ours.double() - true_grad).abs().max() <= 4 * torch.finfo(torch.bfloat16).eps * true_grad.abs().max()


def test_autocast_leaves_float64_as_it_is() -> None:
    table, features, target = case("cosine", bias=True)
    with torch.autocast("cpu", torch.bfloat16), Products() as products:
        table.loss(features, target).loss.backward()
    assert set(products.dtypes) == {torch.float64}


class Products(TorchDispatchMode):
    """Records the matrix products that are computed, and the largest tensor that is made."""

    def __init__(self) -> None:
        super().__init__()
        self.dtypes: list[torch.dtype] = []
        self.largest = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        if func.overloadpacket in (torch.ops.aten.mm, torch.ops.aten.addmm_):
            self.dtypes.append(args[0].dtype)
        if isinstance(result, Tensor):
            self.largest = max(self.largest, result.numel())
        return result


def test_no_gradients_where_none_are_wanted() -> None:
    table, features, target = case("cosine", bias=True)
    with torch.no_grad(), Products() as products:
        result = table.loss(features, target)
    assert not result.loss.requires_grad
    assert len(products.dtypes) == 3  # one a chunk
    torch.testing.assert_close(result.loss, table.loss(features, target).loss.detach())


@every_method
def test_a_frozen_table_costs_no_gradient_and_leaves_the_features_theirs(method: str) -> None:
    table, features, target = case(method, bias=False)
    expected = torch.autograd.grad(plain_loss(table, features, target, 0.1), features)[0]
    table.requires_grad_(False)
    with Products() as products:
        loss = table.loss(features, target, LossOptions(0.1)).loss
    assert len(products.dtypes) == 6  # scores and features' gradient, of three chunks
    torch.testing.assert_close(torch.autograd.grad(loss, features)[0], expected)


@both_ways
@every_method
def test_a_table_alone_gets_its_gradient(method: str) -> None:
    table, features, target = case(method, bias=True)
    found = table.loss(features.detach(), target, LossOptions(0.1)).loss
    assert_same_gradients(found, plain_loss(table, features.detach(), target, 0.1), table.parameters())


@both_ways
@pytest.mark.parametrize(("method", "reduce"), [("plain", False), ("cosine", True)])
def test_a_compiler_gets_it_in_one_graph(method: str, reduce: bool) -> None:
    torch.compiler.reset()  # which counts the graphs of a function
    table, features, target = case(method, bias=True, embeds=True)
    options = LossOptions(0.1, 0.02, reduce)

    @torch.compile(backend="aot_eager", fullgraph=True)
    def compiled(features: Tensor) -> Tensor:
        return 3 * table.loss(features + table(target), target, options).loss.sum()

    expected = 3 * plain_loss(table, features + table(target), target, 0.1, 0.02)
    assert_same_gradients(compiled(features), expected, [features, *table.parameters()])


def test_second_derivatives_are_refused() -> None:
    table, features, target = case("cosine", bias=False)
    with pytest.raises(RuntimeError, match="got create_graph=True"):
        torch.autograd.grad(table.loss(features, target).loss, features, create_graph=True)


def test_backward_twice_gives_the_same() -> None:
    table, features, target = case("plain", bias=True)
    loss = table.loss(features, target).loss
    (loss * 2).backward(retain_graph=True)
    once = table.weight.grad.clone()
    table.weight.grad = None
    (loss * 2).backward()
    torch.testing.assert_close(table.weight.grad, once)


@every_method
def test_never_holds_all_scores(method: str) -> None:
    table = SharedEmbedding(100, 2, 1, method=method, constants=Constants(logit_soft_cap=9.0))
    options = LossOptions(augmented_loss=1.0)
    with Products() as products:
        table.loss(torch.randn(50, 2, requires_grad=True), torch.arange(50), options).loss.backward()
    assert products.largest == 3 * 100


@pytest.mark.parametrize(("rows", "trained", "held"), [(7, True, 7), (8, True, 3), (7, False, 3)])
def test_logits_of_all_rows_are_held_where_a_float32_sum_would_be_as_large(
    rows: int, trained: bool, held: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loss_by_rows, "AT_ONCE", {torch.bfloat16})
    features, weight = (torch.randn(n, 2).bfloat16() for n in (rows, 100))
    weight.requires_grad_(trained)
    target = torch.arange(rows)
    with Products() as products:
        loss = output_loss(features.requires_grad_(), weight, target).loss
    assert products.largest == held * 100
    exact = F.cross_entropy(features.float() @ weight.float().t(), target, reduction="sum")
    torch.testing.assert_close(loss, exact, rtol=0.02, atol=0)


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
@pytest.mark.parametrize(("scores", "on_cpu", "on_gpu"), [(100, 2, 2), (500, 5, 5), (1_000, 7, 10)])
def test_a_large_vocabulary_has_fewer_rows_at_a_time(
    scores: int, on_cpu: int, on_gpu: int, device: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loss_by_rows, "ROWS", 7)
    monkeypatch.setattr(loss_by_rows, "SCORES", scores)
    monkeypatch.setattr(loss_by_rows, "GPU_BYTES", 4 * scores)
    monkeypatch.setattr(loss_by_rows, "FEWEST_ROWS", 2)
    table, target = SharedEmbedding(100, 2, 1).to(device), torch.arange(50, device=device)
    features = torch.randn(50, 2, device=device, requires_grad=True)
    with Products() as products:
        loss = table.loss(features, target).loss
    chunks = math.ceil(50 / (on_cpu if device == "cpu" else on_gpu))  # of equal size
    assert products.largest == math.ceil(50 / chunks) * 100
    torch.testing.assert_close(loss, F.cross_entropy(table.scores(features), target, reduction="sum"))


def test_of_a_vocabulary_too_large_for_that_only_a_block_of_words_is_held(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loss_by_rows, "SCORES", 100 * losses.BY_WORDS_BELOW - 1)
    monkeypatch.setattr(loss_by_words, "ELEMENTS", 200 * 2)
    monkeypatch.setattr(loss_by_words, "FEWEST_WORDS", 3)
    table = SharedEmbedding(100, 1, 1).bfloat16()
    with Products() as products:
        table.loss(torch.randn(200, 1).bfloat16().requires_grad_(), torch.arange(200) // 2).loss.backward()
    assert products.largest == 200 * 3


@every_method
def test_a_row_of_scores_longer_than_a_block(method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    table, features, target = case(method, bias=True)
    expected = plain_loss(table, features, target, 0.1)
    monkeypatch.setattr(squared_norms, "CACHED_ELEMENTS", 4)
    found = table.loss(features, target, LossOptions(0.1)).loss
    assert_same_gradients(found, expected, [features, *table.parameters()])


@pytest.mark.parametrize("reduce", [True, False])
def test_no_words_cost_nothing(reduce: bool) -> None:
    table, features, target = case("plain", bias=True)
    result = table.loss(features[:0], target[:0], LossOptions(reduce=reduce))
    result.loss.sum().backward()
    assert result.loss.shape == (() if reduce else (0,))
    assert result.loss.sum() == 0
    assert table.weight.grad.abs().sum() == 0


@pytest.mark.parametrize("epsilon", [-0.1, 1.0])
def test_smoothing_out_of_range_is_refused(epsilon: float) -> None:
    with pytest.raises(ValueError, match=rf"--label-smoothing: needs a value in \[0, 1\); got {epsilon}"):
        LossOptions(label_smoothing=epsilon)


@pytest.mark.parametrize("z", [-0.1, float("inf"), float("nan")])
def test_weight_of_z_loss_out_of_range_is_refused(z: float) -> None:
    with pytest.raises(ValueError, match=rf"--z-loss: needs a finite value, 0 or more; got {z}"):
        LossOptions(z_loss=z)


@pytest.mark.gpu
@every_method
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_a_gpu_gives_the_same(method: str, dtype: torch.dtype) -> None:
    # The gradient of a short row, divided by its squared norm, is beyond float16.
    exact, features, target = case(method, bias=True, shortest=0.3 if dtype == torch.float16 else 1e-4)
    truth = torch.autograd.grad(plain_loss(exact, features, target, 0.1, 0.02), [features, exact.weight])
    table = copy.deepcopy(exact).to("cuda", dtype)
    inputs = [features.detach().to("cuda", dtype).requires_grad_(), table.weight]
    theirs = torch.autograd.grad(plain_loss(table, inputs[0], target.cuda(), 0.1, 0.02), inputs)
    ours = torch.autograd.grad(table.loss(inputs[0], target.cuda(), LossOptions(0.1, 0.02)).loss, inputs)
    for our_grad, their_grad, true_grad in zip(ours, theirs, truth, strict=True):
        budget = (their_grad.cpu() - true_grad).abs().max() + 4 * torch.finfo(dtype).eps * true_grad.abs().max()
        assert (our_grad.cpu() - true_grad).abs().max() <= budget
