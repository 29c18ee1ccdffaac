"""Sharing methods with parameters and a feature map of their own, and methods from outside the package."""

import copy
import itertools
import math
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from fairseq_tiedemb import LossOptions, SharedEmbedding, SharingMethod, output_loss, register_sharing_method
from fairseq_tiedemb.sharing import SHARING_METHODS

from . import reference
from .conftest import InProcess
from .gradients import assert_same_gradients
from .models import attention_nmts, families, recurrent_lms
from .models.common import TARGET, grown

PAD, V, D = 1, 9, 4
CONFIG = Path(__file__).parent.parent / "fairseq_tiedemb" / "config"


class ScaleNorm(nn.Module):
    """g h / ||h||, Nguyen & Salazar 2019."""

    def __init__(self, width: int):
        super().__init__()
        self.g = nn.Parameter(torch.tensor(width**0.5))

    def forward(self, features: Tensor) -> Tensor:
        return self.g * features / features.norm(dim=-1, keepdim=True)


LEARNED = SharingMethod(
    name="learned-cosine",
    summary="cosine with a learned temperature, and a learned scale of each input vector",
    source="a test",
    parameters={"temperature": lambda v, d: torch.tensor(1.5)},
    input_parameters={"lengths": lambda v, d: torch.linspace(0.5, 1.5, v)},
    input_scale=lambda n, own: own["lengths"] * n.rsqrt(),
    scale=lambda n, own: own["temperature"] * n.rsqrt(),
    offset=lambda n, own: own["temperature"] * torch.zeros_like(n),
)
MAPPED = SharingMethod("scale-norm", "features of one length", "a test", feature_map=ScaleNorm)


@pytest.fixture(autouse=True)
def methods() -> Iterator[None]:
    before = dict(SHARING_METHODS)
    register_sharing_method(LEARNED)
    register_sharing_method(MAPPED)
    yield
    SHARING_METHODS.clear()
    SHARING_METHODS.update(before)


def case(method: str, **options: Any) -> tuple[SharedEmbedding, Tensor, Tensor]:
    table = SharedEmbedding(V, D, PAD, method=method, bias=True, **options).double()
    features = torch.randn(6, D, dtype=torch.float64, requires_grad=True)
    return table, features, torch.randint(2, V, (6,))


def numerical(loss: Callable[[], Tensor], parameter: Tensor) -> np.ndarray:
    """Central differences in float64."""
    flat, found = parameter.detach().view(-1), []
    for index in range(len(flat)):
        kept, values = flat[index].item(), []
        for step in (1e-6, -1e-6):
            flat[index] = kept + step
            values.append(float(loss().detach()))
        flat[index] = kept
        found.append((values[0] - values[1]) / 2e-6)
    return np.array(found).reshape(parameter.shape)


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("method", ["learned-cosine", "scale-norm"])
def test_the_loss_trains_what_the_scores_train(method: str, smoothing: float) -> None:
    table, features, target = case(method)
    inputs = [features, *table.parameters()]
    options = LossOptions(smoothing, 0.01)

    def loss() -> Tensor:
        return table.loss(features, target, options).loss

    def of_scores() -> float:
        rows = table.scores(features).detach().numpy()
        words = zip(rows, target.tolist(), strict=True)
        pairs = [reference.smoothed_cross_entropy(row, word, smoothing) for row, word in words]
        return sum(pair[0] for pair in pairs) + 0.01 * sum(math.log(np.exp(row).sum()) ** 2 for row in rows)

    assert loss().item() == pytest.approx(of_scores(), rel=1e-12)
    names = ["features", *(name for name, _ in table.named_parameters())]
    assert any("temperature" in name or name.endswith(".g") for name in names)
    gradients = torch.autograd.grad(loss(), inputs, allow_unused=True)
    for name, parameter, found in zip(names, inputs, gradients, strict=True):
        if "lengths" in name:  # of the input
            assert found is None or not found.any()
            continue
        np.testing.assert_allclose(found.numpy(), numerical(loss, parameter), rtol=1e-5, atol=1e-7, err_msg=name)


def test_input_parameters_of_each_word_belong_to_that_word() -> None:
    table, _, _ = case("learned-cosine")
    words = torch.tensor([[2, 5], [7, 2]])
    rows = table.weight[words] / table.weight[words].norm(dim=-1, keepdim=True)
    torch.testing.assert_close(table.embed(words), rows * torch.linspace(0.5, 1.5, V)[words].unsqueeze(-1).double())


@pytest.mark.parametrize(("embeds", "scores"), [(True, False), (False, True)])
def test_a_table_has_only_the_parameters_of_its_role(embeds: bool, scores: bool) -> None:
    assert (case("scale-norm", embeds=embeds, scores=scores)[0].feature_map is not None) == scores
    own = {"t": lambda v, d: torch.ones(())}
    register_sharing_method(SharingMethod("out", "", "", parameters=own, scale=lambda n, own: own["t"] * n))
    assert bool(case("out", embeds=embeds, scores=scores)[0].method_parameters) == scores
    register_sharing_method(SharingMethod("in", "", "", input_parameters=own, input_scale=lambda n, own: own["t"]))
    assert bool(case("in", embeds=embeds, scores=scores)[0].method_parameters) == embeds


# --- output_loss ---------------------------------------------------------------------------------------------------


def plain_loss(features: Tensor, table: Tensor, target: Tensor, scale: Any, offset: Any, bias: Any) -> Tensor:
    scores = features @ table.t()
    for term, add in ((scale, torch.mul), (offset, torch.add), (bias, torch.add)):
        scores = scores if term is None else add(scores, term)
    return nn.functional.cross_entropy(scores, target, reduction="none")


@pytest.mark.parametrize("reduce", [True, False])
@pytest.mark.parametrize("given", [(), ("scale",), ("offset",), ("bias",), ("scale", "offset", "bias")])
@pytest.mark.parametrize("frozen", [True, False])
def test_gradients_of_all_of_them(given: tuple[str, ...], reduce: bool, frozen: bool) -> None:
    _, features, target = case("plain")
    table = torch.randn(V, D, dtype=torch.float64, requires_grad=not frozen)
    terms = {name: torch.randn(V, dtype=torch.float64) for name in given}
    for term in terms.values():
        term[[0, 2]] = 0.0  # as a scale too
        term.requires_grad_()
    weights = torch.rand(len(target), dtype=torch.float64)
    every = {"scale": None, "offset": None, "bias": None} | terms
    expected = plain_loss(features, table, target, **every)
    found = output_loss(features, table, target, **terms, options=LossOptions(reduce=reduce)).loss
    torch.testing.assert_close(found, expected.sum() if reduce else expected)
    losses = (found, expected.sum()) if reduce else (found @ weights, expected @ weights)
    assert_same_gradients(*losses, [features, *([] if frozen else [table]), *terms.values()])


def test_a_constant_scale_is_no_error() -> None:
    register_sharing_method(SharingMethod("half", "", "", scale=lambda n: torch.full_like(n, 0.5)))
    table, features, target = case("half")
    table.loss(features, target).loss.backward()
    expected = nn.functional.cross_entropy(features @ table.weight.t() / 2 + table.bias, target, reduction="sum")
    torch.testing.assert_close(table.loss(features, target).loss, expected)


@pytest.mark.parametrize("smoothing", [0.0, 0.3])
def test_one_word_in_all_is_certain(smoothing: float) -> None:
    features, table = torch.randn(3, D, requires_grad=True), torch.randn(1, D, requires_grad=True)
    loss = output_loss(features, table, torch.zeros(3, dtype=torch.long), options=LossOptions(smoothing)).loss
    loss.backward()
    assert loss.item() == 0.0
    assert table.grad.abs().max() < 1e-6


@pytest.mark.parametrize("method", ["l2-input", "cosine", "square-output"])
def test_a_row_whose_square_overflows(method: str) -> None:
    table = SharedEmbedding(V, D, PAD, method=method)
    with torch.no_grad():
        table.weight[3] *= 1e20
    features, target = torch.randn(6, D, requires_grad=True), torch.randint(2, V, (6,))
    exact = copy.deepcopy(table).double()
    truth = features.detach().double().requires_grad_()
    expected = nn.functional.cross_entropy(exact.scores(truth), target, reduction="sum")
    inputs = [features, table.weight]
    plain = nn.functional.cross_entropy(table.scores(features), target, reduction="sum")
    for loss in (table.loss(features, target).loss, plain):
        assert loss.item() == pytest.approx(expected.item(), rel=1e-5)
        for found, true in zip(
            torch.autograd.grad(loss, inputs),
            torch.autograd.grad(expected, [truth, exact.weight], retain_graph=True),
            strict=True,
        ):
            assert (found - true).norm() <= 1e-5 * true.norm() + 1e-12
    vectors = table.embed(torch.tensor([3]))
    assert vectors.isfinite().all()
    torch.testing.assert_close(vectors.double(), exact.embed(torch.tensor([3])), rtol=1e-5, atol=0)


@torch.no_grad()
def test_kept_norms_see_a_changed_parameter() -> None:
    table, features, _ = case("learned-cosine")
    table.eval().keep()
    before = table.scores(features)
    table.method_parameters["temperature"].mul_(2.0)
    torch.testing.assert_close(table.scores(features), 2 * before)


# --- models --------------------------------------------------------------------------------------------------------

BUILDERS: dict[str, Callable[..., Any]] = {
    "lstm_nmt": lambda **options: attention_nmts.build("lstm_nmt", **options),
    "tied_lstm_lm": recurrent_lms.build,
    **{family: lambda family=family, **options: families.build(family, **options) for family in families.FAMILIES},
}


@pytest.mark.parametrize(
    ("name", "shared", "method"),
    [
        *itertools.product(BUILDERS, [True, False], ["learned-cosine"]),
        *itertools.product(["tied_lstm_lm"], [True, False], ["scale-norm", "plain"]),
    ],
)
def test_every_model_trains_them_and_p(name: str, shared: bool, method: str) -> None:
    """A model's loss has the gradient of its scores, of P and of a method's own parameters too."""
    width = {} if name not in ("lstm_nmt", "tied_lstm_lm") else {"decoder_hidden_size": 8}
    model = BUILDERS[name](
        sharing_method=method, projection=True, projection_bias=True, share_decoder_input_output_embed=shared, **width
    )
    model = grown(model).double().eval()
    batch = families.inputs("transformer_lm" if "lm" in name and name != "lstm_nmt" else "transformer")
    if "lm" in name and name != "lstm_nmt":
        batch["src_lengths"] = TARGET.ne(PAD).sum(1)
    is_word = TARGET.ne(PAD)
    loss = model(**batch, target=TARGET).loss
    expected = nn.functional.cross_entropy(model(**batch)[0][is_word], TARGET[is_word], reduction="sum")
    torch.testing.assert_close(loss, expected)
    trained = {key: each for key, each in model.named_parameters() if each.requires_grad}
    found, theirs = (torch.autograd.grad(each, list(trained.values()), allow_unused=True) for each in (loss, expected))
    for key, ours, other in zip(trained, found, theirs, strict=True):
        assert (ours is None) == (other is None), key
        if ours is not None:
            torch.testing.assert_close(ours, other, msg=key)
    used = {key for key, each in zip(trained, found, strict=True) if each is not None}
    assert {"decoder.projection.weight", "decoder.projection.bias"} <= used
    own = {"learned-cosine": "temperature", "scale-norm": "feature_map.g", "plain": "decoder.projection"}[method]
    assert any(own in key for key in used)
    again = BUILDERS[name](
        sharing_method=method, projection=True, projection_bias=True, share_decoder_input_output_embed=shared, **width
    )
    again.double().eval().load_state_dict(model.state_dict())
    torch.testing.assert_close(again(**batch)[0], model(**batch)[0], rtol=0, atol=0)
    torch.testing.assert_close(copy.deepcopy(model)(**batch)[0], model(**batch)[0], rtol=0, atol=0)


@pytest.mark.parametrize(
    ("name", "method"),
    [("tied_lstm_lm", "learned-cosine"), *((name, "scale-norm") for name in BUILDERS if name != "lstm_nmt")],
)
def test_tables_of_fairseqs_own_are_refused(name: str, method: str) -> None:
    """Bands that are not tied would score without the method, and without a word."""
    with pytest.raises(ValueError, match=f"--sharing-method {method}: needs bands that input and output share; got"):
        BUILDERS[name](sharing_method=method, adaptive_softmax_cutoff="5,8", adaptive_softmax_factor=2.0)


@pytest.mark.parametrize("name", BUILDERS)
def test_what_a_method_has_begins_as_it_says(name: str) -> None:
    """Recurrent language models draw all their other parameters anew."""
    for method in (MAPPED, LEARNED):
        model = BUILDERS[name](sharing_method=method.name, share_decoder_input_output_embed=True)
        [table] = model.output.tables().values()
        size, width = table.num_embeddings, table.embedding_dim
        assert table.feature_map is None or table.feature_map.g.item() == pytest.approx(width**0.5)
        for own, make in method.parameters.items():
            torch.testing.assert_close(table.method_parameters[own].data, make(size, width))


@pytest.mark.parametrize(("arch", "method"), [("lstm_nmt_twwt", "scale-norm"), ("tied_transformer", "learned-cosine")])
def test_fairseq_train_trains_them_and_p_for_translation(
    arch: str, method: str, parallel_data: Path, train: InProcess, tmp_path: Path
) -> None:
    sizes = (
        "--encoder-embed-dim 8 --encoder-hidden-size 8 --decoder-embed-dim 8 --decoder-hidden-size 8 "
        "--decoder-out-embed-dim 12"
        if arch == "lstm_nmt_twwt"
        else "--encoder-layers 1 --decoder-layers 1 --encoder-embed-dim 8 --decoder-embed-dim 8 "
        "--encoder-attention-heads 2 --decoder-attention-heads 2 --share-all-embeddings"
    )
    flags = (
        f"--arch {arch} {sizes} --sharing-method {method} --projection --projection-bias "
        "--criterion tied_cross_entropy "
        "--augmented-loss 0.5 --augmented-temperature 2 --logit-soft-cap 30 --embedding-scale 1.5 "
        "--cosine-regularization 0.1 --norm-regularization 0.01 --norm-target 2 --mean-regularization 0.1 "
        "--projection-regularization 0.15 --optimizer adam --lr 0.01 --batch-size 20 --max-update 3 "
        "--no-epoch-checkpoints"
    )
    text = train(parallel_data, *flags.split(), "--save-dir", tmp_path)
    assert f"by method {method}, with P and its bias; " in text
    assert re.search(r"penalty 0\.\d*[1-9]|'penalty': '0\.\d*[1-9]", text)
    state = torch.load(tmp_path / "checkpoint_last.pt", weights_only=True)["model"]
    own, start = {"scale-norm": ("feature_map.g", 8**0.5), "learned-cosine": ("temperature", 1.5)}[method]
    [learned] = {float(value) for key, value in state.items() if key.endswith(own)}
    assert learned != pytest.approx(start, abs=1e-4)
    assert state["decoder.projection.weight"].shape == ((8, 12) if arch == "lstm_nmt_twwt" else (8, 8))
