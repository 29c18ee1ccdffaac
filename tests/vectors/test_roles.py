"""Tables by role: effective vectors against what models do, what is tied, bands, and what is refused."""

from argparse import Namespace
from pathlib import Path
from typing import Any

import pytest
import torch
from fairseq.models.fconv import FConvDecoder
from torch import Tensor

from fairseq_tiedemb.sharing import SHARING_METHODS
from fairseq_tiedemb.vectors.roles import named_table, tables_by_role

from ..crossing import crossed
from ..models.common import dictionary, grown
from ..models.families import BANDS, SHARINGS, build, options_of
from ..test_methods_with_parameters import LEARNED

PATH = Path("some.pt")
METHODS = [*(name for name, method in SHARING_METHODS.items() if method.feature_map is None), LEARNED.name]
DECODER = {"share_decoder_input_output_embed": True}


@pytest.fixture(autouse=True)
def learned(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(SHARING_METHODS, LEARNED.name, LEARNED)


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


@pytest.mark.parametrize(("sharing", "method"), crossed([*SHARINGS][::2], METHODS))
def test_effective_vectors_are_the_models(sharing: str, method: str) -> None:
    family, options = SHARINGS[sharing]
    tied = any(options.values())
    options = {"sharing_method": method, "embedding_scale": 1.5, "logit_scale": 0.7, **options}
    model = grown(build(family, **options)).eval()
    state = saved(model, **vars(options_of(family, **options)))
    default = tables_by_role(state, None, path=PATH)
    assert list(default) == (["tied"] if tied else ["in", "out"])
    found = {role: tables_by_role(state, role, path=PATH)[role] for role in ("in", "out", "sum")}
    torch.testing.assert_close(found["in"], input_vectors(model))
    torch.testing.assert_close(found["out"], output_vectors(model), rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(found["sum"], found["in"] + found["out"], rtol=0, atol=0)
    if tied:
        assert torch.equal(default["tied"], found["in"])
    if hasattr(model, "encoder"):
        source = tables_by_role(state, "source", path=PATH)["source"]
        torch.testing.assert_close(source, input_vectors(model, "encoder"))


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
    old = Namespace(share_all_embeddings=True)
    for state in ({"cfg": {"model": DECODER}, "model": model}, {"args": old, "model": model}):
        for role in (None, "in", "out", "tied"):
            (found,) = tables_by_role(state, role, path=PATH).values()
            assert torch.equal(found, table)
        assert torch.equal(tables_by_role(state, "sum", path=PATH)["sum"], 2 * table)
    untied = {"cfg": {"model": {}}, "model": {**model, "decoder.fc_out.weight": table + 1}}
    assert torch.equal(tables_by_role(untied, "out", path=PATH)["out"], table + 1)


def test_fairseqs_convolutional_models() -> None:
    def state(**options: Any) -> dict[str, Any]:
        sizes = {"embed_dim": 4, "out_embed_dim": 4, "convolutions": [(4, 3)]}
        decoder = FConvDecoder(dictionary(5), **sizes, **options)
        return {"cfg": {"model": options}, "model": {f"decoder.{k}": v for k, v in decoder.state_dict().items()}}

    shared = state(share_embed=True)
    (found,) = tables_by_role(shared, "tied", path=PATH).values()
    assert torch.equal(found, shared["model"]["decoder.fc3.weight"])
    normalised = state()  # as g and v, which are no table
    assert list(tables_by_role(normalised, None, path=PATH)) == ["in"]
    with pytest.raises(ValueError, match=r"got out .output, V .* for some.pt, which has none. .* decoder.fc3.\S+ "):
        tables_by_role(normalised, "out", path=PATH)


@pytest.mark.parametrize("method", ["plain", "cosine"])
def test_factorised_tables_are_the_narrow_ones(method: str) -> None:
    model = grown(build("transformer", sharing_method=method, embedding_rank=3, **DECODER))
    state = saved(model, sharing_method=method)
    found = tables_by_role(state, "tied", path=PATH)["tied"]
    assert torch.equal(found, model.decoder.embed_tokens.table.weight)
    assert tables_by_role(state, "out", path=PATH)["out"].shape == found.shape


def test_bands_are_refused_and_an_input_beside_them_is_read() -> None:
    bands = saved(build("transformer_lm", **BANDS))
    for role in (None, "in", "out", "tied", "sum"):
        with pytest.raises(ValueError, match=r"--role: needs one table for all words; got \w+ for some.pt|got tied"):
            tables_by_role(bands, role, path=PATH)
    model = {"decoder.embed_tokens.weight": torch.ones(9, 4).half()}
    model["decoder.adaptive_softmax.head.weight"] = torch.ones(5, 4)
    state = {"cfg": {"model": {}}, "model": model}
    found = tables_by_role(state, "in", path=PATH)["in"]
    assert (found.shape, found.dtype) == ((9, 4), torch.float32)
    with pytest.raises(ValueError, match=r"needs one table for all words; got out for some.pt"):
        tables_by_role(state, None, path=PATH)


def test_refusals() -> None:
    def state(settings: dict[str, Any], **model: Tensor) -> dict[str, Any]:
        return {"cfg": {"model": settings}, "model": {f"decoder.{k}.weight": weight for k, weight in model.items()}}

    untied, table = saved(build("transformer_lm")), torch.ones(9, 4)
    learned = saved(build("transformer_lm", sharing_method=LEARNED.name), sharing_method=LEARNED.name)
    del learned["model"]["decoder.embed_tokens.method_parameters.lengths"]
    factorised = state({"embedding_rank": 4}, embed_tokens=table, fc_out=torch.zeros(9, 4))
    for given, role, message in (
        (untied, "tied", "--role: needs in, out or sum .* got tied for some.pt"),
        (untied, "source", "got source .input of the encoder. for some.pt, which has none"),
        ({"cfg": None, "model": {"x": torch.ones(3)}}, None, "got in .* for some.pt, which has none. .* another file"),
        (state({}, embed_tokens=table, fc_out=torch.ones(9, 5)), "sum", r"with input \(9, 4\) and output \(9, 5\)"),
        (factorised, "sum", "got sum for some.pt, of --embedding-rank 4"),
        (state({}, embed_tokens=torch.ones(9)), "in", "got in .* which has none"),
        (learned, "in", "TABLE: needs the parameter 'lengths' of --sharing-method learned-cosine; got some"),
        (state({"sharing_method": "unknown"}, embed_tokens=table), "in", "a registered method; got 'unknown'"),
    ):
        with pytest.raises(ValueError, match=message):
            tables_by_role(given, role, path=PATH)


def test_a_matrix_by_its_name() -> None:
    state = saved(build("transformer_lm"))
    name = "decoder.layers.0.fc1.weight"
    assert torch.equal(named_table(state, name, path=PATH), state["model"][name])
    message = r"--tensor: needs a role \(in, .*\) or the name of a matrix of some.pt; got fc1. Use --tensor with"
    with pytest.raises(ValueError, match=message):
        named_table(state, "fc1", path=PATH)
