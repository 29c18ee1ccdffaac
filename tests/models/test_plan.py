"""Who shares what: settings of every family, and the plan or the message that follows; models are what plans say."""

import re
from typing import Any

import pytest
import torch
from fairseq.models import ARCH_MODEL_REGISTRY

from fairseq_tiedemb.models._describe import describe, layers_of
from fairseq_tiedemb.models.lightconv import TiedLightConvLanguageModel, TiedLightConvModel
from fairseq_tiedemb.plan import Table

from ..travels import TRAVELS
from .common import dictionary, grown
from .families import ALL, BANDS, CHARACTERS, DECODER
from .plans import CUTOFF, MORE, PAD, THEIRS, WORDS, V, family_and_settings, plan_of, task


def table(roles: str, rows: int = V, width: int = 6, pad: int | None = PAD, bands: tuple[int, ...] = ()) -> Table:
    """A table whose roles are letters: input i, output o; encoder e, decoder d, its output p."""
    names = {"i": "input", "o": "output", "e": "encoder input", "d": "decoder input", "p": "decoder output"}
    return Table(tuple(names[role] for role in roles), rows, width, pad, bands)


def case(preset: str, tables: list[Table], options: Any = None, words: tuple = (), **attributes: Any) -> tuple:
    """A preset, options, dictionaries, and what follows: tables and attributes of the plan."""
    return preset, options or {}, words, tables, attributes


P = {"projection": 6, "projection_bias": True}
ADAPTIVE = {"head": "adaptive", "bands": (5, 8, V)}
THEIR_BANDS = {"head": "adaptive", "bands": (8, 16, V)}
# The last band, the third, is 16 / 4^2 wide.
NARROW = {f"adaptive_{side}_cutoff": f"8,12,{V}" for side in ("input", "softmax")}
NARROW |= {f"adaptive_{side}_factor": 4.0 for side in ("input", "softmax")}
PLANS: dict[str, tuple] = {
    "NMT": case("lstm_nmt", [table("e", V + 2), table("d"), table("p")], words=(MORE, WORDS), features=6),
    "NMT, tied": case("lstm_nmt_wt", [table("e"), table("dp")], {"sharing_method": "cosine"}, method="cosine"),
    "NMT, three ways": case("dl4mt_twwt", [table("edp")]),
    "NMT, P": case(
        "dl4mt",
        [table("e"), table("dp")],
        {**DECODER, "projection": True, "projection_bias": True, "decoder_out_embed_dim": 7},
        features=7,
        **P,
    ),
    "LSTM, two widths": case("tied_lstm_lm", [table("i"), table("o", width=8)], {"decoder_hidden_size": 8}),
    "LSTM, tied": case("zaremba_lm_small_wt", [table("io")], projection=None),
    "LSTM, P": case("zaremba_lm_small_wt_pr", [table("io")], {"decoder_hidden_size": 8}, features=8, **P),
    "LSTM, P without its bias": case(
        "zaremba_lm_small_pr",
        [table("i"), table("o")],
        {"no_projection_bias": True},
        projection=6,
        projection_bias=False,
    ),
    "LSTM, short-list": case(
        "tied_lstm_lm",
        [table("i"), table("o", 5, pad=None)],
        {"output_layer": "short-list", "short_list": 4},
        head="short-list",
    ),
    "LSTM, short-list, tied": case(
        "zaremba_lm_small_wt", [table("io")], {"output_layer": "short-list", "short_list": 4}, head="short-list"
    ),
    "LSTM, tree": case("tied_lstm_lm", [table("i")], {"output_layer": "tree"}, head="tree"),
    "LSTM, bands": case("tied_lstm_lm", [table("i")], {**CUTOFF, "output_layer": "adaptive"}, **ADAPTIVE, bias=False),
    "RHN, tied bands": case(
        "highway_lm",
        [table("io", bands=(5, 8, V))],
        {**CUTOFF, **DECODER, "projection": True},
        **ADAPTIVE,
        projection=6,
    ),
    "n-gram": case("bengio_lm", [table("i"), table("o", width=30)], features=30),
    "n-gram, P": case("feedforward_lm_wt", [table("io")], {"skip_connections": True}, features=30, **P),
    "n-gram, deep": case(
        "feedforward_lm",
        [table("io")],
        {**DECODER, "deep_output": "relu", "decoder_hidden_size": 9},
        features=6,
        projection=None,
    ),
    "skip-gram": case("word2vec_skipgram", [table("i"), table("o")], head="negative-sampling", bias=False),
    "skip-gram, full": case(
        "word2vec_skipgram", [table("io")], {**DECODER, "word2vec_output": "full"}, head="softmax", bias=False
    ),
    "CBOW, tree": case("word2vec_cbow", [table("i")], {"output_layer": "tree"}, head="tree", bias=False),
    "Transformer": case(
        "transformer",
        [table("e", V + 2, 16), table("dp", width=16)],
        DECODER,
        words=(MORE, WORDS),
        bias=False,
        features=16,
    ),
    "Transformer, merged": case(
        "transformer", [table("edp", width=16)], {"merge_src_tgt_embed": True}, words=(dictionary(V - 2), dictionary(V))
    ),
    "Transformer, merged, the source with words of its own": case(
        "transformer", [table("edp", width=16)], {"merge_src_tgt_embed": True}, words=(dictionary(V), dictionary(V - 2))
    ),
    "Transformer, bands": case(
        "transformer", [table("ed", width=16)], {**ALL, **THEIRS, "sharing_method": "plain"}, **THEIR_BANDS
    ),
    "LightConv, factorised": case(
        "lightconv", [table("edp", width=16)], {**ALL, "embedding_rank": 4, "projection": True}, rank=4, projection=16
    ),
    "Transformer LM, P": case(
        "transformer_lm",
        [table("io", width=8)],
        {**DECODER, "decoder_input_dim": 8, "projection": True},
        features=16,
        projection=8,
    ),
    "Transformer, the last band ends the dictionary": case(
        "transformer", [table("e", width=16), table("d", width=16)], {"adaptive_softmax_cutoff": f"8,{V}"}, bands=(8, V)
    ),
    "Transformer LM, factorised, two widths": case(
        "transformer_lm",
        [table("io", width=8)],
        {**DECODER, "embedding_rank": 4, "decoder_input_dim": 8},
        features=16,
        rank=4,
    ),
    "Transformer LM, tied bands": case(
        "transformer_lm",
        [table("io", width=16, bands=(8, 16, V))],
        {**BANDS, "sharing_method": "l2-input"},
        **THEIR_BANDS,
        method="l2-input",
    ),
    "Transformer LM, tied bands, the last of which ends the dictionary": case(
        "transformer_lm",
        [table("io", width=16, bands=(8, 12, V))],
        {**BANDS, **NARROW},
        **{**THEIR_BANDS, "bands": (8, 12, V)},
    ),
    "Transformer LM, bands of the input": case(
        "transformer_lm",
        [table("i", width=16, bands=(8, 16, V)), table("o", width=16)],
        {**BANDS, "tie_adaptive_weights": False, "adaptive_softmax_cutoff": None},
        bands=(),
    ),
    "Transformer LM, NCE": case(
        "transformer_lm", [table("io", width=16)], {**DECODER, "output_layer": "nce"}, head="nce", bias=True
    ),
    "LightConv LM, tree": case("lightconv_lm", [table("i", width=16)], {"output_layer": "tree"}, head="tree"),
    "LightConv LM, characters": case("lightconv_lm", [table("o", width=16)], CHARACTERS),
    "LightConv LM, characters and a tree": case(
        "lightconv_lm", [], {**CHARACTERS, "output_layer": "tree"}, head="tree", output=None
    ),
}
every_plan = pytest.mark.parametrize("case", PLANS.values(), ids=PLANS)


@every_plan
def test_a_plan_follows_from_settings(case: tuple) -> None:
    preset, options, words, tables, attributes = case
    plan = plan_of(preset, *words, **options)
    assert list(plan.tables) == tables
    assert {name: getattr(plan, name) for name in attributes} == attributes


def build(case: tuple) -> Any:
    preset, options, words, _, _ = case
    model_class, cfg = family_and_settings(preset, options)
    return model_class.build_model(cfg, task(*words))


def assert_shares_as_planned(model: Any) -> None:
    """Every role of a table has the same layers, and no two tables have one in common."""
    every = []
    for each in model.plan.tables:
        layers = [id(layer.weight) for layer in layers_of(model, each)]
        every += layers
        for role in each.roles[1:]:
            others = layers_of(model, Table((role,), each.rows, each.width))
            assert [id(layer.weight) for layer in others] == layers, role
    assert len(set(every)) == len(every)


def number(text: str) -> int:
    return int(text.replace(",", ""))


@every_plan
def test_a_model_is_what_its_plan_says(case: tuple) -> None:
    model = build(case)
    plan = model.plan
    assert_shares_as_planned(model)
    for each in plan.tables:
        layers = layers_of(model, each)
        ends = [0, *(each.bands or (each.rows,))]
        sizes = [end - start for start, end in zip(ends, ends[1:], strict=False)]
        assert [layer.num_embeddings for layer in layers] == sizes
        assert layers[0].embedding_dim == (plan.rank or each.width)
        assert {layer.method for layer in layers} == {plan.method}
        assert layers[0].padding_idx == each.padding_idx
    projection = model.output.projection
    assert (projection is None) == (plan.projection is None)
    if projection is not None:
        assert projection.weight.shape == (plan.projection, plan.features)
        assert (projection.bias is not None) == plan.projection_bias
    head = {"adaptive": "--adaptive-softmax-cutoff"}.get(plan.head, f"--output-layer {plan.head}")
    assert model.output.head.flag == head
    assert all((layer.bias is not None) == plan.bias for layer in model.output.tables().values())
    [(total, parts)] = re.findall(r"; ([\d,]+) parameters: (.*) \(embeddings", describe(model, "it"))
    assert sum(map(number, re.findall(r"[\d,]*\d(?=, |$)", parts))) == number(total)


@every_plan
def test_what_is_written_through_the_input_is_read_through_the_output(case: tuple) -> None:
    model = grown(build(case)).double().eval()
    if model.plan.head in ("short-list", "tree"):
        pytest.skip("its probabilities are made of a text's counts")
    features, has_probabilities = torch.ones(1, model.plan.features).double(), model.plan.head != "negative-sampling"

    def of_word() -> torch.Tensor:
        if has_probabilities:
            return model.output.log_prob(features, torch.tensor([4]))
        return model.output.scores(features)[0, 4]

    before, table = of_word(), model.plan.tables[-1 if model.plan.tied else 0]
    with torch.no_grad():
        layers_of(model, table)[0].weight[4] *= -1.0
        assert (of_word() != before) == table.scores


TRAVELLERS = ("NMT, three ways", "LSTM, P", "RHN, tied bands", "n-gram, P", "skip-gram, full", "Transformer")
TRAVELLERS += ("LightConv, factorised", "Transformer LM, tied bands", "Transformer LM, NCE")


@pytest.mark.parametrize("travel", TRAVELS)
@pytest.mark.parametrize("name", TRAVELLERS)
def test_sharing_survives(name: str, travel: Any) -> None:
    model = build(PLANS[name])
    kept = {id(parameter) for parameter in model.parameters()}
    travelled = travel(model)
    assert_shares_as_planned(travelled)
    assert len(list(travelled.parameters())) == len(kept)
    if travelled is not model:
        assert kept.isdisjoint(id(parameter) for parameter in travelled.parameters())


@pytest.mark.parametrize(
    ("preset", "options", "same_as"),
    [
        ("lstm_nmt", DECODER, "lstm_nmt_wt"),
        ("lstm_nmt", ALL, "lstm_nmt_twwt"),
        ("lstm_nmt_twwt", DECODER, "lstm_nmt_twwt"),
        ("lstm_nmt_wt", ALL, "lstm_nmt_twwt"),
        ("zaremba_lm_small_wt", {**DECODER, "projection": True, "projection_bias": True}, "zaremba_lm_small_wt_pr"),
        ("zaremba_lm_small_pr", {**DECODER, "projection": True}, "zaremba_lm_small_wt_pr"),
        ("feedforward_lm", DECODER, "feedforward_lm_wt"),
    ],
)
def test_flags_mean_what_presets_mean(preset: str, options: dict, same_as: str) -> None:
    assert plan_of(preset, **options) == plan_of(same_as)


@pytest.mark.parametrize("former", ["negative", "full", "tree"])
def test_the_former_names_of_word2vecs_output(former: str) -> None:
    now = {"negative": "negative-sampling", "full": "softmax", "tree": "tree"}[former]
    expected = plan_of("word2vec_cbow", output_layer=now)
    assert plan_of("word2vec_cbow", word2vec_output=former) == expected
    assert plan_of("word2vec_cbow", word2vec_output=former, output_layer=now) == expected


def test_no_class_of_ours_is_deep() -> None:
    ours = {model for model in ARCH_MODEL_REGISTRY.values() if model.__module__.startswith("fairseq_tiedemb.")}
    assert {TiedLightConvModel, TiedLightConvLanguageModel} < ours
    for model in ours:
        assert sum(each.__module__.startswith("fairseq_tiedemb.") for each in model.__mro__) <= 4, model
