"""Our forms of fairseq's models: losses, criterions, what starts near a guess, decoding, refusals."""

import logging
from typing import Any

import pytest
import torch
from fairseq.criterions import CRITERION_DATACLASS_REGISTRY
from fairseq.criterions.adaptive_loss import AdaptiveLoss
from fairseq.criterions.label_smoothed_cross_entropy import LabelSmoothedCrossEntropyCriterion
from fairseq.models import ARCH_MODEL_REGISTRY
from fairseq.sequence_generator import SequenceGenerator
from omegaconf import OmegaConf

from fairseq_tiedemb.criterions.cross_entropy import TiedCrossEntropy
from fairseq_tiedemb.embedding import SharedEmbedding

from .common import LENGTHS, PAD, SOURCE, TARGET, dictionary, grown, write_vectors
from .families import (
    ALL,
    BANDS,
    DECODER,
    FAMILIES,
    WORDS,
    build,
    every_family,
    every_sharing,
    inputs,
    options_of,
    scores,
    task_of,
)

TASK = task_of(WORDS, WORDS)
GENERATION = OmegaConf.create({"generation": {"no_beamable_mm": True, "beam": 2, "retain_dropout": False}})


def sample_of(family: str) -> dict[str, Any]:
    return {"net_input": inputs(family), "target": TARGET, "ntokens": int(TARGET.ne(PAD).sum())}


def lean(label_smoothing: float = 0.0) -> TiedCrossEntropy:
    return TiedCrossEntropy.build_criterion(
        CRITERION_DATACLASS_REGISTRY["tied_cross_entropy"](label_smoothing=label_smoothing, sentence_avg=False), TASK
    )


def gradients(model: Any, loss: torch.Tensor) -> torch.Tensor:
    found = torch.autograd.grad(loss, [each for each in model.parameters() if each.requires_grad])
    return torch.cat([each.flatten() for each in found])


@every_sharing
def test_the_loss_is_that_of_fairseqs_criterion(family: str, options: dict) -> None:
    model = grown(build(family, **options)).double().eval()
    loss, size, log = lean(0.1)(model, sample_of(family))
    theirs = LabelSmoothedCrossEntropyCriterion(TASK, False, 0.1)  # which computes in float32
    their_loss, their_size, their_log = theirs(model, sample_of(family))
    assert size == their_size == int(TARGET.ne(PAD).sum())
    expected = [their_loss.item(), their_log["nll_loss"].item()]
    assert [loss.item(), log["nll_loss"].item()] == pytest.approx(expected, rel=1e-5)
    ours, fairseqs = (gradients(model, each) for each in (loss, their_loss))
    assert (ours - fairseqs).norm() <= 1e-5 * fairseqs.norm()


@every_family
def test_the_loss_needs_no_scores_and_leaves_the_model_as_it_was(family: str) -> None:
    model = build(family, **DECODER)
    output, head = model.decoder.output_projection, model.output.head

    def refuse(*_: Any) -> None:
        raise AssertionError("scores were computed")

    head.scores = refuse
    model(**inputs(family), target=TARGET)
    with pytest.raises(TypeError, match="no_such_argument"):
        model(**inputs(family), target=TARGET, no_such_argument=True)
    with pytest.raises(AssertionError, match="scores were computed"):
        scores(model, family)
    del head.scores
    assert model.decoder.output_projection is output
    assert "output_projection.weight" in "".join(model.state_dict())


def test_generation_computes_norms_once(monkeypatch: pytest.MonkeyPatch) -> None:
    model = build("transformer", sharing_method="cosine", **ALL).eval()
    calls = []
    computed = SharedEmbedding.squared_norms
    monkeypatch.setattr(SharedEmbedding, "squared_norms", lambda self: calls.append(1) or computed(self))
    generator = SequenceGenerator([model], WORDS, beam_size=2, max_len_b=6)

    def generate() -> None:
        calls.clear()
        generator.generate([model], {"net_input": {"src_tokens": SOURCE, "src_lengths": LENGTHS}})

    generate()
    assert len(calls) > 1
    model.prepare_for_inference_(GENERATION)  # as fairseq-generate, -interactive and the hub do
    generate()
    assert len(calls) == 1
    generate()
    assert len(calls) == 0


def test_p_starts_with_the_spread_of_its_input_and_a_bias_of_zero() -> None:
    projection = build("transformer", projection=True, projection_bias=True).output.projection
    assert not projection.bias.any()
    assert projection.weight.std().item() == pytest.approx(16**-0.5, rel=0.15)


def test_a_model_in_half_precision_reads_a_checkpoint_in_float32() -> None:
    state = build("transformer", **DECODER).state_dict()
    model = build("transformer", seed=4, **DECODER).half()
    model.load_state_dict(state)
    assert torch.equal(model.output.weight, state["decoder.embed_tokens.weight"].half())


def test_the_output_layers_repr_says_whether_it_is_tied() -> None:
    assert repr(build("transformer", **DECODER).output) == "OutputLayer(tied)"
    assert repr(build("transformer").output).startswith("OutputLayer(\n  (owned): SharedEmbedding(24, 16")


def test_fairseqs_upgrade_of_older_checkpoints_is_made() -> None:
    """Queries', keys' and values' weights were one matrix once."""
    model = build("transformer", **ALL)
    state, prefix = dict(model.state_dict()), "decoder.layers.0.self_attn."
    for kind in ("weight", "bias"):
        parts = [state.pop(f"{prefix}{part}_proj.{kind}") for part in "qkv"]
        state[f"{prefix}in_proj_{kind}"] = torch.cat(parts)
    fresh = build("transformer", seed=4, **ALL)
    fresh.load_state_dict(state)
    for key, value in model.state_dict().items():
        assert torch.equal(fresh.state_dict()[key], value)


def test_old_checkpoints_without_the_output_s_entry_load() -> None:
    model = build("transformer", **ALL)
    state = {key: value for key, value in model.state_dict().items() if "output_projection" not in key}
    build("transformer", seed=4, **ALL).load_state_dict(state)


MERGED = {"merge_src_tgt_embed": True}
HALVES = " 0.5" * 16
VECTORS = {  # fairseq's own reader reads the first file rightly, and no other
    "header": f"2 16\nword0{HALVES}\nother{HALVES}\n",
    "no header": f"word0{HALVES}\nother{HALVES}\n",
    "tabs": f"word0{HALVES}\n".replace(" ", "\t"),
    "a word twice": f"2 16\nword0{HALVES}\nword0{' 1' * 16}\n",
    "a word with spaces": f"2 16\nNew York{HALVES}\nword0{HALVES}\n",
}


@pytest.mark.parametrize("sides", ["encoder", "decoder", "encoder decoder"])
@pytest.mark.parametrize(
    ("family", "sharing"), [("transformer", {}), ("transformer", ALL), ("transformer", MERGED), ("dynamicconv", ALL)]
)
def test_pretrained_vectors(family: str, sharing: dict[str, Any], sides: str, tmp_path: Any) -> None:
    path = write_vectors(tmp_path / "vectors.txt", 16)
    model = build(
        family,
        source=dictionary(24),
        target=dictionary(20 if sharing == MERGED else 24),
        sharing_method="l2-input",
        **{f"{side}_embed_path": path for side in sides.split()},
        **sharing,
    )
    row = torch.tensor(WORDS.index("word0"))
    for side in ("encoder", "decoder"):
        table = getattr(model, side).embed_tokens
        has_vectors = bool(sharing) or side in sides
        assert table.weight[row].eq(0.5).all() == has_vectors
        assert not table.weight[row + 1].eq(0.5).any()
        if has_vectors:
            torch.testing.assert_close(table(row), torch.full((16,), 0.25))


@pytest.mark.parametrize("text", VECTORS.values(), ids=VECTORS)
def test_files_of_vectors_are_read_alike_by_every_family(text: str, tmp_path: Any) -> None:
    (path := tmp_path / "vectors.txt").write_text(text)
    args = options_of("transformer", sharing_method="plain", encoder_embed_path=str(path))
    model = ARCH_MODEL_REGISTRY["tied_transformer"].build_model(args, task_of(WORDS, WORDS))
    assert model.encoder.embed_tokens.weight[WORDS.index("word0")].eq(0.5).all()
    assert args.encoder_embed_path == str(path)  # which the checkpoint keeps


def test_convolutional_models_have_one_width() -> None:
    message = "--decoder-embed-dim: needs 16, as --encoder-embed-dim, .*; got 12. Use 16"
    with pytest.raises(ValueError, match=message):
        build("lightconv", decoder_embed_dim=12)


@pytest.mark.parametrize("side", ["encoder", "decoder"])
def test_vectors_that_do_not_fit_are_refused(side: str, tmp_path: Any) -> None:
    path = write_vectors(tmp_path / "vectors.txt", 12)
    with pytest.raises(ValueError, match=f"--{side}-embed-path: needs vectors of width 16, the table's; got 12 in"):
        build("transformer", **{f"{side}_embed_path": path})


def test_start_up_says_what_is_shared(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO):
        model = build("dynamicconv", sharing_method="cosine", **ALL)
        build("transformer_lm", **BANDS)
        for family in ("lightconv_lm", "lightconv"):
            build(family)
        build("transformer_lm", adaptive_softmax_cutoff="8,16")
    size = sum(parameter.numel() for parameter in model.parameters())
    table = model.encoder.embed_tokens.weight.numel()
    shared = "encoder input = decoder input = decoder output"
    parts = f"{shared} {table:,}, rest {size - table:,} "
    assert f"{shared} (three-way weight tying) by method cosine; {size:,} parameters: {parts}" in caplog.messages[0]
    assert "tied_transformer_lm: shares input = output in bands (weight tying) by method plain" in caplog.messages[1]
    assert [" shares nothing " in line for line in caplog.messages] == [False, False, True, True, True]
    # A name that begins with tied_ alone shares nothing.
    told = [line.partition("; tied_ in its name says ")[2].partition(": ")[2] for line in caplog.messages]
    assert told == [
        "",
        "",
        "--share-decoder-input-output-embed shares",
        "--share-decoder-input-output-embed shares, and --share-all-embeddings three ways",
        "--adaptive-input --tie-adaptive-weights shares, in language models",
    ]


BANDED = [(family, {"adaptive_softmax_cutoff": "8,16"}) for family in FAMILIES]
BANDED += [(family, {**BANDS, "sharing_method": "l2-input"}) for family in ("transformer_lm", "lightconv_lm")]


@pytest.mark.parametrize(("family", "options"), BANDED)
def test_our_criterion_gives_the_loss_of_an_adaptive_softmax(family: str, options: dict[str, Any]) -> None:
    model = build(family, **options).eval()
    sample = sample_of(family)
    ours, theirs = lean()(model, sample)[0], AdaptiveLoss(TASK, False)(model, sample)[0]
    torch.testing.assert_close(ours, theirs.squeeze())
    trained = [each for each in model.parameters() if each.requires_grad]
    found = [torch.autograd.grad(loss, trained, allow_unused=True) for loss in (ours, theirs)]
    for each in zip(*found, strict=True):
        assert (each[0] is None) == (each[1] is None)  # the layers of a band that no target is in
        assert each[0] is None or torch.allclose(*each, atol=1e-6)
    with pytest.raises(ValueError, match="--label-smoothing: needs 0 with --adaptive-softmax-cutoff; got 0.1"):
        lean(0.1)(model, sample)
