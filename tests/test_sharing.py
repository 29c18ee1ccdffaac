"""The registry, and the contract that every registered method keeps."""

import re
from typing import Any

import numpy as np
import pytest
import torch

from fairseq_tiedemb.embedding import SharedEmbedding
from fairseq_tiedemb.sharing import SHARING_METHODS, SharingMethod, register_sharing_method, sharing_method

from . import reference
from .models.common import grown

PAD = 1
every_method = pytest.mark.parametrize("method", SHARING_METHODS)


def embedding(method: str, rows: int = 12, width: int = 5, bias: bool = False) -> SharedEmbedding:
    table = SharedEmbedding(rows, width, PAD, method=method, bias=bias).double()
    with torch.no_grad():  # norms that differ, as in a trained table
        table.weight.mul_(torch.rand(rows, 1, dtype=torch.float64) * 2 + 0.2)
    return table


def words(table: SharedEmbedding) -> list[int]:
    return [word for word in range(table.num_embeddings) if word != PAD]


def test_the_papers_methods_are_registered_and_every_method_has_its_equation() -> None:
    assert list(SHARING_METHODS)[:5] == ["plain", "l2-input", "square-output", "distance", "cosine"]
    known = reference.SCORES.keys() | reference.LEARNED_SCORES.keys()
    assert SHARING_METHODS.keys() == known, "Add the equation to SCORES or LEARNED_SCORES in tests/reference.py."


def test_a_name_is_registered_once() -> None:
    with pytest.raises(ValueError, match="got 'cosine', which is 'scores divided"):
        register_sharing_method(SharingMethod(name="cosine", summary="again", source="here"))


@pytest.mark.parametrize("name", ["", "with space", "a,b", "--mine", "50%", None])
def test_names_are_what_a_command_line_takes(name: Any) -> None:
    with pytest.raises(ValueError, match=f"needs a name of letters, digits and .*; got {name!r}. Use"):
        register_sharing_method(SharingMethod(name=name, summary="", source=""))


def test_only_methods_are_registered_and_looked_up_by_name() -> None:
    mine: Any = "mine"
    with pytest.raises(ValueError, match="needs an instance of SharingMethod; got 'mine'"):
        register_sharing_method(mine)
    with pytest.raises(ValueError, match=r"needs the name of a registered method; got SharingMethod\(name='plain'"):
        SharedEmbedding(12, 5, PAD, method=sharing_method("plain"))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("functions", "got"),
    [
        ({"scale": lambda squared_norms: squared_norms[:2]}, r"\(2,\) for n of shape \(12,\)"),
        ({"scale": lambda squared_norms: squared_norms.unsqueeze(0)}, r"\(1, 12\) for n of shape \(12,\)"),
        ({"offset": lambda squared_norms: None}, r"None for n of shape \(12,\)"),
        ({"input_scale": lambda squared_norms: 2.0}, r"2.0 for n of shape \(1,\)"),
        ({"feature_map": lambda width: torch.nn.Linear(width, 2 * width)}, r"\(3, 10\)"),
    ],
)
def test_functions_that_return_something_else(functions: dict[str, Any], got: str, monkeypatch: Any) -> None:
    monkeypatch.setitem(SHARING_METHODS, "wrong", SharingMethod(name="wrong", summary="", source="", **functions))
    table = SharedEmbedding(12, 5, PAD, method="wrong")
    with pytest.raises(ValueError, match=f"'wrong': needs .*; got {got}"):
        table.embed(torch.tensor([3])), table.scores(torch.ones(3, 5))


@pytest.mark.parametrize("value", [3.0, torch.tensor(3)])
def test_parameters_are_tensors_of_floating_point_numbers(value: Any, monkeypatch: Any) -> None:
    own = {"a": lambda *_: value}
    method = SharingMethod("wrong", "", "", scale=lambda n, own: n * own["a"], parameters=own)
    monkeypatch.setitem(SHARING_METHODS, "wrong", method)
    with pytest.raises(ValueError, match=re.escape(f"got {value!r} for 'a'")):
        SharedEmbedding(12, 5, PAD, method="wrong")


def test_the_name_of_readmes_former_example_may_be_taken_once(monkeypatch: pytest.MonkeyPatch) -> None:
    mine = SharingMethod(name="scaled-cosine", summary="mine", source="")
    monkeypatch.setitem(SHARING_METHODS, "scaled-cosine", SHARING_METHODS["scaled-cosine"])
    monkeypatch.setattr(SHARING_METHODS, "yields", {"scaled-cosine"})
    assert register_sharing_method(mine) is sharing_method("scaled-cosine")
    with pytest.raises(ValueError, match="got 'scaled-cosine', which is 'mine'"):
        register_sharing_method(mine)


ONE = {"one": lambda size, width: torch.ones(())}


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"scale": lambda n, own: n}, r"needs scale\(n\), or parameters for scale\(n, own\); got scale\(n, own\)"),
        (
            {"offset": lambda n: n, "parameters": ONE},
            r"needs offset\(n, own\) beside parameters; got offset\(n\). Use offset=lambda n, own: ",
        ),
        ({"input_scale": lambda n, own: n, "parameters": ONE}, r"needs input_scale\(n\), or input_parameters for inp"),
        (
            {"scale": lambda n, own: own["values"], "parameters": {"values": lambda size, width: torch.ones(())}},
            "needs names of parameters that nn.ParameterDict does not have; got 'values'. Use 'my_scale', say",
        ),
        ({"input_parameters": {"my.one": ONE["one"]}}, "needs names of parameters .* got 'my.one'"),
        ({"scale": lambda: None}, r"needs scale\(n\), or parameters"),
        (
            {"scale": lambda n, own: n, "parameters": {"mine": lambda size: torch.ones(size)}},
            r"needs a function of V and D for 'mine'; got mine\(size\). Use mine=lambda size, width: ...",
        ),
        ({"input_parameters": {"mine": 2.0}}, "needs a function of V and D for 'mine'; got mine=2.0. Use mine=lambda "),
        (
            {"feature_map": lambda: torch.nn.Identity()},
            r"needs feature_map\(width\), of a module; got feature_map\(\). Use its class.",
        ),
        ({"scale": 2.0}, r"needs scale\(n\), or parameters for scale\(n, own\); got scale=2.0. Use scale=lambda n: "),
        (
            {"scale": lambda n: n / n.mean()},
            "needs element-wise functions of n, .* got scale, which mixes or changes it",
        ),
        ({"offset": lambda n: n - n.max()}, "needs element-wise functions of n, .* got offset, which mixes or changes"),
        ({"scale": lambda n: n.mean()}, "needs element-wise functions of n, .* got scale, which mixes or changes it"),
        ({"scale": lambda n: n.clamp_(max=2.0).rsqrt()}, "needs element-wise .* got scale, which mixes or changes it"),
        (
            {
                "scale": lambda n, own: own["a"].softmax(0) / n,
                "parameters": {"a": lambda size, width: torch.rand(size)},
            },
            "needs element-wise functions of n, .* got scale, which mixes or changes it",
        ),
        (
            {"input_scale": lambda n: n.rsqrt_()},
            "needs element-wise functions of n, which they leave as it is; got input",
        ),
    ],
)
def test_functions_that_cannot_be_are_refused(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=f"sharing method 'mine': {message}"):
        SharingMethod(name="mine", summary="", source="", **fields)


def test_tables_do_not_share_a_parameter_that_their_method_keeps(monkeypatch: pytest.MonkeyPatch) -> None:
    kept = torch.ones(())
    fields = {"scale": lambda n, own: own["one"], "parameters": {"one": lambda size, width: kept}}
    method = SharingMethod(name="mine", summary="", source="", **fields)
    first, second = (method.initial_parameters(3, 2, embeds=True, scores=True)["one"] for _ in range(2))
    first.data.fill_(5.0)
    assert kept == second == 1.0


def test_rows_start_as_those_of_plain_unless_a_factor_changes_with_the_norm() -> None:
    def method(**fields: Any) -> SharingMethod:
        return SharingMethod(name="mine", summary="", source="", **fields)

    random = {"scales": lambda size, width: torch.rand(12)}  # of another size than it is asked for
    before = torch.get_rng_state()
    assert not method(scale=lambda n, own: own["scales"], parameters=random).divides_by_norm
    assert method(scale=lambda n, own: own["scales"] / n, parameters=random).divides_by_norm
    assert method(input_scale=torch.rsqrt).divides_by_norm
    assert method(scale=lambda n: n.clamp(min=9).rsqrt()).divides_by_norm
    assert method(scale=lambda n, own: own["scales"][5], parameters=ONE).divides_by_norm  # which cannot be told
    assert not method(offset=torch.neg).divides_by_norm
    assert method(scale=lambda n: (n - 1).sqrt()).divides_by_norm  # nan below 1
    with torch.device("meta"):
        assert method(scale=torch.rsqrt).divides_by_norm
        assert not method(scale=lambda n, own: own["one"], parameters=ONE).divides_by_norm
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize("method", reference.LEARNED_SCORES)
def test_equations_with_parameters(method: str) -> None:
    table, features = grown(embedding(method, bias=True)), torch.randn(3, 5, dtype=torch.float64)
    vectors, scores = table.embed(torch.arange(12)).detach(), table.scores(features).detach()
    learned = {name.rpartition(".")[2]: each.detach().numpy() for name, each in table.named_parameters()}
    rows, bias = learned.pop("weight"), learned.pop("bias")
    for word in words(table):
        own = {name: values[word] if values.shape[:1] == (12,) else values for name, values in learned.items()}
        expected = reference.LEARNED_VECTORS.get(method, lambda row, own: row)(rows[word], own)
        np.testing.assert_allclose(vectors[word], expected, rtol=1e-10)
        expected = [reference.LEARNED_SCORES[method](rows[word], h, own) + bias[word] for h in features.numpy()]
        np.testing.assert_allclose(scores[:, word], expected, rtol=1e-9)


@pytest.mark.parametrize("method", reference.SCORES)
def test_equations(method: str) -> None:
    table, features = embedding(method), torch.randn(3, 5, dtype=torch.float64)
    vectors, scores = table.embed(torch.arange(12)), table.scores(features)
    for word in words(table):
        row = table.weight[word].detach().numpy()
        np.testing.assert_allclose(vectors[word].detach(), reference.input_vector(method, row), rtol=1e-10)
        expected = [reference.score(method, row, h) for h in features.numpy()]
        np.testing.assert_allclose(scores[:, word].detach(), expected, rtol=1e-10)


def test_untied_gradients_of_the_plain_model() -> None:
    """Press & Wolf 2016, section 3: only row i_t of the input; (p(k) - [k = o_t]) h for every row of the output."""
    source, output = embedding("plain"), embedding("plain")
    h = source.embed(torch.tensor([4]))
    scores = output.scores(h)
    torch.nn.functional.cross_entropy(scores, torch.tensor([6])).backward()
    p = reference.softmax(scores[0].detach().numpy())
    expected = np.outer(p - np.eye(12)[6], h[0].detach().numpy())
    np.testing.assert_allclose(output.weight.grad, expected, rtol=1e-10)
    assert source.weight.grad.abs().sum(1).nonzero().flatten().tolist() == [4]


@pytest.mark.parametrize("method", ["l2-input", "cosine", "distance"])
def test_identity_holds(method: str) -> None:
    table = embedding(method, rows=200)
    best = table.scores(table.weight).argmax(1)
    assert [int(best[word]) for word in words(table)] == words(table)


@pytest.mark.parametrize("method", ["plain", "square-output"])
def test_identity_is_false_for_square_output_and_plain(method: str) -> None:
    """w_k = (2, 0) and w_i = (.5, .1): h = w_k scores 1 and 3.85 by square-output; plain fails the other way round."""
    table = SharedEmbedding(3, 2, PAD, method=method).double()
    with torch.no_grad():
        table.weight[0], table.weight[2] = torch.tensor([2.0, 0.0]), torch.tensor([0.5, 0.1])
    scores = table.scores(table.weight)
    if method == "square-output":
        torch.testing.assert_close(scores[0, [0, 2]], torch.tensor([1.0, 1 / 0.26]).double(), rtol=1e-6, atol=0.0)
        assert scores[0, 2] > scores[0, 0]
    else:
        assert scores[2, 0] > scores[2, 2]


def test_condition_for_identity_of_square_output() -> None:
    """Row k wins for h = w_k exactly if cos(w_k, w_i) ||w_k|| < ||w_i|| for every other i."""
    table = embedding("square-output", rows=300)
    rows = table.weight.detach()[words(table)].numpy()
    scores = table.scores(torch.from_numpy(rows)).detach()[:, words(table)]
    norms = np.linalg.norm(rows, axis=1)
    holds = rows @ rows.T / norms / norms[:, None] * norms[:, None] < norms
    holds |= np.eye(len(rows), dtype=bool)
    wins = scores.argmax(1).numpy() == np.arange(len(rows))
    np.testing.assert_array_equal(wins, holds.all(1))
    assert 0 < wins.sum() < len(wins)


def test_normality_holds_for_l2_input_only() -> None:
    """h in the convex hull of input vectors scores at most 1 by l2-input; by cosine h = (3, 0) scores 3."""
    table = embedding("l2-input")
    mixture = torch.softmax(torch.randn(100, 11, dtype=torch.float64) * 3, 1)
    features = mixture @ table.embed(torch.tensor(words(table)))
    assert table.scores(features).max() <= 1 + 1e-6
    cosine = SharedEmbedding(2, 2, PAD, method="cosine").double()
    with torch.no_grad():
        cosine.weight[0] = torch.tensor([3.0, 0.0])
    torch.testing.assert_close(cosine.scores(cosine.weight)[0, 0].item(), 3.0, rtol=1e-6, atol=0.0)


@pytest.mark.parametrize(("method", "unbiased"), [("l2-input", True), ("square-output", True), ("plain", False)])
def test_unbiased(method: str, unbiased: bool) -> None:
    """With isotropic directions E(score_k) = alpha_k for h = sum_j alpha_j v_j, v input vectors."""
    generator = torch.Generator().manual_seed(3)
    trials, rows, width = 1500, 6, 16
    alpha = torch.tensor([0.4, 0.3, 0.15, 0.1, 0.05]).double()
    table = SharedEmbedding(rows, width, rows - 1, method=method).double()
    norms = torch.linspace(0.5, 2.0, rows, dtype=torch.float64).unsqueeze(1)
    total = torch.zeros(rows - 1, dtype=torch.float64)
    for _ in range(trials):
        directions = torch.nn.functional.normalize(torch.randn(rows, width, generator=generator).double())
        with torch.no_grad():
            table.weight.copy_(directions * norms)
            total += table.scores(alpha @ table.embed(torch.arange(rows - 1)))[: rows - 1]
    # A score's standard deviation is below 0.5, so the mean's is below 0.013.
    error = (total / trials - alpha).abs().max().item()
    assert (error < 0.03) == unbiased


@every_method
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_finite_with_its_padding_row(method: str, dtype: torch.dtype) -> None:
    table = SharedEmbedding(12, 8, PAD, method=method, bias=True).to(dtype)
    assert table.weight[PAD].abs().sum() == 0
    features = table.embed(torch.tensor([PAD, 2, 3])) + torch.randn(3, 8).to(dtype)
    scores = table.scores(features)
    assert scores.dtype == dtype
    (scores.float().logsumexp(1).sum() + table.embed(torch.tensor([PAD])).sum().float()).backward()
    assert scores.isfinite().all()
    assert table.weight.grad.isfinite().all()
    # The padding row counts as norm 1, so its gradient is of the size of the others and not 1/eps times that.
    others = table.weight.grad[words(table)].abs().max()
    assert 0 < table.weight.grad[PAD].abs().max() <= 10 * others


@every_method
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_short_rows_that_are_not_padding_are_finite(method: str, dtype: torch.dtype) -> None:
    for length in (0.0, 1e-3):
        table = SharedEmbedding(4, 3, PAD, method=method).to(dtype)
        with torch.no_grad():
            table.weight[2] = length
        scores = table.scores(torch.ones(1, 3, dtype=dtype))
        assert scores.isfinite().all()
        (scores.float().logsumexp(1).sum() + table.embed(torch.tensor([2])).float().sum()).backward()
        assert table.weight.grad[[0, 1, 3]].isfinite().all()
        assert dtype != torch.float32 or table.weight.grad.isfinite().all()


def test_norms_have_a_floor_and_padding_is_of_norm_one() -> None:
    table = SharedEmbedding(5, 3, PAD)
    with torch.no_grad():
        table.weight[2], table.weight[3] = 0, torch.tensor([2e-3, 0, 0])
    torch.testing.assert_close(table.squared_norms()[[PAD, 2, 3]], torch.tensor([1, 1e-6, 4e-6]), rtol=1e-5, atol=0)
