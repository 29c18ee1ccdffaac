"""Tables by role: effective vectors against what models do, what is tied, bands, and what is refused."""

from argparse import Namespace
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from fairseq_tiedemb.sharing import SHARING_METHODS, register_sharing_method
from fairseq_tiedemb.vectors.roles import named_table, tables_by_role

from ..models import recurrent_lms
from ..models.common import grown
from ..models.families import BANDS, SHARINGS, build, options_of
from ..test_methods_with_parameters import LEARNED

PATH = Path("some.pt")
DECODER = {"share_decoder_input_output_embed": True}


@pytest.fixture(autouse=True)
def methods() -> Iterator[None]:
    before = dict(SHARING_METHODS)
    register_sharing_method(LEARNED)
    yield
    SHARING_METHODS.clear()
    SHARING_METHODS.update(before)


def saved(model: Any, **settings: Any) -> dict[str, Any]:
    return {"cfg": {"model": settings}, "model": model.state_dict()}


def input_vectors(model: Any, side: str = "decoder") -> Tensor:
    """What the model looks words up as."""
    table = getattr(model, side).embed_tokens
    return table(torch.arange(table.num_embeddings)).detach()


def output_vectors(model: Any) -> Tensor:
    """What the features are multiplied by: the scores of unit features, less those of none."""
    layer = model.output.scores if hasattr(model, "output") else model.decoder.output_projection
    width = model.decoder.embed_tokens.embedding_dim
    with torch.no_grad():
        return (layer(torch.eye(width)) - layer(torch.zeros(1, width))).t()


@pytest.mark.parametrize("method", [*SHARING_METHODS, LEARNED.name])
@pytest.mark.parametrize(("family", "options"), [*SHARINGS.values()][::2], ids=[*SHARINGS][::2])
def test_effective_vectors_are_the_models(family: str, options: dict[str, Any], method: str) -> None:
    model = grown(build(family, sharing_method=method, **options)).eval()
    state = saved(model, **vars(options_of(family, sharing_method=method, **options)))
    tied = any(options.values())
    default = tables_by_role(state, None, path=PATH)
    assert list(default) == (["tied"] if tied else ["in", "out"])
    found = {role: tables_by_role(state, role, path=PATH)[role] for role in ("in", "out", "sum")}
    torch.testing.assert_close(found["in"], input_vectors(model), rtol=0, atol=0)
    torch.testing.assert_close(found["out"], output_vectors(model), rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(found["sum"], found["in"] + found["out"], rtol=0, atol=0)
    if tied:
        assert torch.equal(default["tied"], found["in"])
    if hasattr(model, "encoder"):
        source = tables_by_role(state, "source", path=PATH)["source"]
        torch.testing.assert_close(source, input_vectors(model, "encoder"), rtol=0, atol=0)


@pytest.mark.parametrize("family", ["transformer", "lightconv", "transformer_lm", "lightconv_lm"])
@pytest.mark.parametrize("options", [{}, DECODER])
def test_stock_models(family: str, options: dict[str, Any]) -> None:
    model = grown(build(family, ours=False, **options))
    state = saved(model, **options)
    found = {**tables_by_role(state, "in", path=PATH), **tables_by_role(state, "out", path=PATH)}
    assert torch.equal(found["in"], model.decoder.embed_tokens.weight)
    torch.testing.assert_close(found["out"], output_vectors(model), rtol=1e-4, atol=1e-4)
    assert list(tables_by_role(state, None, path=PATH)) == (["tied"] if options else ["in", "out"])


def test_stock_recurrent_models_have_no_entry_for_a_tied_output() -> None:
    table = torch.randn(9, 4)
    model = {"decoder.embed_tokens.weight": table}
    settings = {"share_decoder_input_output_embed": True}
    for state in ({"cfg": {"model": settings}, "model": model}, {"args": Namespace(**settings), "model": model}):
        for role in (None, "in", "out", "tied"):
            (found,) = tables_by_role(state, role, path=PATH).values()
            assert torch.equal(found, table)
        assert torch.equal(tables_by_role(state, "sum", path=PATH)["sum"], 2 * table)
    untied = {"cfg": {"model": {}}, "model": {**model, "decoder.fc_out.weight": table + 1}}
    assert torch.equal(tables_by_role(untied, "out", path=PATH)["out"], table + 1)
    unknown = {"cfg": {"model": {}}, "model": {**model, "decoder.fc3.weight": table}}
    assert list(tables_by_role(unknown, None, path=PATH)) == ["in"]
    with pytest.raises(
        ValueError, match=r"got out .output, V .* for some.pt, which has none. .* decoder.fc3.weight .9"
    ):
        tables_by_role(unknown, "out", path=PATH)


@pytest.mark.parametrize("method", ["plain", "cosine", "square-output"])
def test_factorised_tables_are_the_narrow_ones(method: str) -> None:
    model = grown(build("transformer", sharing_method=method, embedding_rank=3, **DECODER))
    state = saved(model, sharing_method=method)
    found = tables_by_role(state, "tied", path=PATH)["tied"]
    assert torch.equal(found, model.decoder.embed_tokens.table.weight)
    assert tables_by_role(state, "out", path=PATH)["out"].shape == found.shape


def test_half_precision_becomes_float32() -> None:
    model = {"decoder.embed_tokens.weight": torch.ones(9, 4).half()}
    assert tables_by_role({"cfg": {"model": {}}, "model": model}, "in", path=PATH)["in"].dtype == torch.float32


def test_recurrent_language_models() -> None:
    model = grown(recurrent_lms.build("zaremba_lm_small", sharing_method="l2-input"))
    state = saved(model, sharing_method="l2-input")
    found = {**tables_by_role(state, None, path=PATH)}
    assert list(found) == ["in", "out"]
    torch.testing.assert_close(found["in"][4:].norm(dim=1), torch.ones(len(found["in"]) - 4))
    torch.testing.assert_close(found["in"], input_vectors(model), rtol=0, atol=0)


@pytest.mark.parametrize("role", [None, "in", "out", "tied", "sum"])
def test_bands_are_refused(role: str | None) -> None:
    model = build("transformer_lm", **BANDS)
    with pytest.raises(ValueError, match=r"--role: needs one table for all words; got \w+ for some.pt|got tied"):
        tables_by_role(saved(model), role, path=PATH)


def test_an_input_beside_bands_is_read() -> None:
    model = {"decoder.embed_tokens.weight": torch.ones(9, 4), "decoder.adaptive_softmax.head.weight": torch.ones(5, 4)}
    state = {"cfg": {"model": {}}, "model": model}
    assert tables_by_role(state, "in", path=PATH)["in"].shape == (9, 4)
    with pytest.raises(ValueError, match=r"needs one table for all words; got out for some.pt"):
        tables_by_role(state, None, path=PATH)


def test_refusals() -> None:
    untied = saved(build("transformer_lm"))
    with pytest.raises(ValueError, match=r"--role: needs in, out or sum .* got tied for some.pt"):
        tables_by_role(untied, "tied", path=PATH)
    with pytest.raises(ValueError, match=r"got source .input of the encoder. for some.pt, which has none"):
        tables_by_role(untied, "source", path=PATH)
    with pytest.raises(ValueError, match=r"got in .* for some.pt, which has none. .* another file"):
        tables_by_role({"cfg": None, "model": {"x": torch.ones(3)}}, None, path=PATH)
    narrow = {"decoder.embed_tokens.weight": torch.ones(9, 4), "decoder.fc_out.weight": torch.ones(9, 5)}
    with pytest.raises(ValueError, match=r"got sum for some.pt, with input \(9, 4\) and output \(9, 5\)"):
        tables_by_role({"cfg": {}, "model": narrow}, "sum", path=PATH)
    factorised = {"decoder.embed_tokens.weight": torch.ones(9, 4), "decoder.fc_out.weight": torch.zeros(9, 4)}
    with pytest.raises(ValueError, match=r"got sum for some.pt, of --embedding-rank 4"):
        tables_by_role({"cfg": {"model": {"embedding_rank": 4}}, "model": factorised}, "sum", path=PATH)
    flat = {"decoder.embed_tokens.weight": torch.ones(9)}
    with pytest.raises(ValueError, match=r"got in .* which has none"):
        tables_by_role({"cfg": {}, "model": flat}, "in", path=PATH)
    state = saved(build("transformer_lm", sharing_method=LEARNED.name), sharing_method=LEARNED.name)
    del state["model"]["decoder.embed_tokens.method_parameters.lengths"]
    with pytest.raises(
        ValueError, match=r"TABLE: needs the parameter 'lengths' of --sharing-method learned-cosine; got some"
    ):
        tables_by_role(state, "in", path=PATH)
    with pytest.raises(ValueError, match=r"needs a registered method; got 'unknown'"):
        tables_by_role({"cfg": {"model": {"sharing_method": "unknown"}}, "model": narrow}, "in", path=PATH)


def test_a_matrix_by_its_name() -> None:
    state = saved(build("transformer_lm"))
    name = "decoder.layers.0.fc1.weight"
    assert torch.equal(named_table(state, name, path=PATH), state["model"][name])
    with pytest.raises(
        ValueError,
        match=r"--tensor: needs a role \(in, .*\) or the name of a matrix of some.pt; got fc1. Use --tensor with",
    ):
        named_table(state, "fc1", path=PATH)
