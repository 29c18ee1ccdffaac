"""Our forms of fairseq's models: with `plain` exactly fairseq's, with every method the papers' equations."""

import copy
import pickle
from typing import Any

import numpy as np
import pytest
import torch
from fairseq.models import ARCH_MODEL_INV_REGISTRY, ARCH_MODEL_REGISTRY

from .. import reference
from .common import PREVIOUS, grown
from .families import (
    ALL,
    BANDS,
    DECODER,
    FAMILIES,
    SHARINGS,
    TRANSLATION,
    WORDS,
    build,
    every_family,
    every_method,
    every_sharing,
    inputs,
    scores,
)

# a tensor of adaptive input that fairseq neither initialises nor reads
UNUSED = "_float_tensor"
LANGUAGE_MODELS = ("transformer_lm", "lightconv_lm")
CHARACTERS = {
    "character_embeddings": True,
    "character_embedding_dim": 4,
    "character_filters": "[(1, 8)]",
    "char_embedder_highway_layers": 1,
}
# with fairseq's own ways of building an embedding
EVERYTHING = {
    **SHARINGS,
    **{f"{family}-bands": (family, BANDS) for family in LANGUAGE_MODELS},
    **{f"{family}-bands-proj": (family, {**BANDS, "tie_adaptive_proj": True}) for family in LANGUAGE_MODELS},
    **{f"{family}-cutoff": (family, {"adaptive_softmax_cutoff": "8,16"}) for family in FAMILIES},
    "transformer-final-norm": ("transformer", {**ALL, "decoder_normalize_before": True}),
    "transformer-no-final-norm": (
        "transformer",
        {**ALL, "decoder_normalize_before": True, "no_decoder_final_norm": True},
    ),
    "transformer-layernorm": ("transformer", {**ALL, "layernorm_embedding": True, "no_scale_embedding": True}),
    "transformer-pq": ("transformer", {**ALL, "quant_noise_pq": 0.1}),
    "transformer-merge": ("transformer", {"merge_src_tgt_embed": True}),
    "transformer-checkpoint": ("transformer", {**ALL, "checkpoint_activations": True}),
    "transformer-learned": ("transformer", {**ALL, "encoder_learned_pos": True, "decoder_learned_pos": True}),
    "transformer_lm-narrow": ("transformer_lm", {**DECODER, "decoder_input_dim": 8, "decoder_output_dim": 8}),
    "transformer_lm-bands-pq": ("transformer_lm", {**BANDS, "quant_noise_pq": 0.1, "quant_noise_pq_block_size": 4}),
    "transformer_lm-bands-in": (
        "transformer_lm",
        {**BANDS, "tie_adaptive_weights": False, "adaptive_softmax_cutoff": None},
    ),
    "lightconv_lm-characters": ("lightconv_lm", CHARACTERS),
}
everything = pytest.mark.parametrize(("family", "options"), EVERYTHING.values(), ids=EVERYTHING)


def theirs_of(family: str, options: dict[str, Any], **more: Any) -> Any:
    if family in ("lightconv", "dynamicconv"):  # fairseq's decoder reads what its options lack
        options = {"tie_adaptive_weights": False, "adaptive_softmax_factor": 4.0, "tie_adaptive_proj": False} | options
    return build(family, ours=False, **options, **more)


@everything
def test_plain_is_fairseqs_model_bit_for_bit(family: str, options: dict) -> None:
    theirs = theirs_of(family, options)
    after_theirs = torch.rand(1)
    ours = build(family, **options)
    assert torch.rand(1) == after_theirs  # no random number more
    assert list(ours.state_dict()) == list(theirs.state_dict())
    for key, value in ours.state_dict().items():
        assert torch.equal(value, theirs.state_dict()[key]) or key.endswith(UNUSED), key
    names = [[name.replace(".owned.", ".") for name, _ in model.named_parameters()] for model in (ours, theirs)]
    assert names[0] == names[1]  # their order is that of an optimiser's state
    for model in (ours, theirs):  # dropout included
        torch.manual_seed(7)
        model.train()
        found = scores(model, family)
        torch.manual_seed(8)
        (found * torch.randn_like(found)).sum().backward()
        model.found = found
    assert torch.equal(ours.found, theirs.found)
    for ours_p, theirs_p in zip(ours.parameters(), theirs.parameters(), strict=True):
        assert (ours_p.grad is None) == (theirs_p.grad is None)
        assert ours_p.grad is None or torch.equal(ours_p.grad, theirs_p.grad)


@pytest.mark.parametrize(
    ("dtype", "length", "expected"), [("bfloat16", 9, False), ("bfloat16", 49, True), ("float32", 9, True)]
)
def test_short_sentences_in_bfloat16_take_plain_products(dtype: str, length: int, expected: bool) -> None:
    model, tokens = build("transformer").to(getattr(torch, dtype)), torch.full((2, length), 5)
    with torch.profiler.profile() as profile:
        model(src_tokens=tokens, src_lengths=None, prev_output_tokens=tokens)
    assert any("flash_attention" in event.key for event in profile.key_averages()) == expected


@everything
def test_checkpoints_load_both_ways(family: str, options: dict) -> None:
    theirs = grown(theirs_of(family, options)).eval()
    ours = build(family, seed=4, **options).eval()
    expected = scores(theirs, family).detach()
    assert not torch.equal(scores(ours, family), expected)
    ours.load_state_dict(copy.deepcopy(theirs.state_dict()))
    assert torch.equal(scores(ours, family), expected)
    back = theirs_of(family, options, seed=5).eval()
    back.load_state_dict(copy.deepcopy(ours.state_dict()))
    assert torch.equal(scores(back, family), expected)


@every_family
def test_plain_decodes_step_by_step_as_fairseq_does(family: str) -> None:
    theirs, ours = (build(family, ours=ours, **DECODER).eval() for ours in (False, True))
    for found, expected in zip(steps(ours, family), steps(theirs, family), strict=True):
        assert torch.equal(found, expected)


def steps(model: Any, family: str) -> list[torch.Tensor]:
    """Scores of each step, decoded incrementally."""
    state: dict = {}
    with torch.no_grad():
        encoded = {}
        if family in TRANSLATION:
            batch = inputs(family)
            encoded = {"encoder_out": model.encoder(batch["src_tokens"], batch["src_lengths"])}
        return [
            model.decoder(PREVIOUS[:, : t + 1], incremental_state=state, **encoded)[0][:, -1]
            for t in range(PREVIOUS.size(1))
        ]


# padding inside a row is masked in the whole, but not step by step
NO_PADDING = PREVIOUS.ne(WORDS.pad())


@every_method
@every_sharing
def test_incremental_scores_are_those_of_the_whole(family: str, options: dict, method: str) -> None:
    model = grown(build(family, sharing_method=method, **options), 0.3).double().eval()
    with torch.no_grad():
        whole = scores(model, family)
    found = torch.stack(steps(model, family), 1)
    torch.testing.assert_close(found[NO_PADDING], whole[NO_PADDING])


def features_of(model: Any, family: str) -> torch.Tensor:
    """What goes into the output layer."""
    seen: list[torch.Tensor] = []
    hook = model.decoder.output_projection.register_forward_pre_hook(lambda _, args: seen.append(args[0]))
    scores(model, family)
    hook.remove()
    return seen[0].detach()


@every_method
@every_sharing
def test_scores_are_those_of_the_papers_given_the_features(family: str, options: dict, method: str) -> None:
    model = grown(build(family, sharing_method=method, **options)).double().eval()
    found, features = scores(model, family).detach(), features_of(model, family)
    table = model.decoder.output_projection.weight.detach().numpy()
    for index in np.ndindex(*PREVIOUS.shape):
        expected = [reference.score(method, row, features[index].numpy()) for row in table]
        words = [word for word in range(len(table)) if word != WORDS.pad()]
        np.testing.assert_allclose(found[index][words], np.array(expected)[words], rtol=1e-9)


@every_method
@every_sharing
def test_vectors_are_those_of_the_papers(family: str, options: dict, method: str) -> None:
    model = grown(build(family, sharing_method=method, **options)).double()
    for part in (getattr(model, "encoder", None), model.decoder):
        if part is None:
            continue
        table = part.embed_tokens.weight.detach().numpy()
        vectors = part.embed_tokens(torch.arange(len(WORDS))).detach()
        for word in range(len(WORDS)):
            if word != WORDS.pad():
                np.testing.assert_allclose(vectors[word], reference.input_vector(method, table[word]), rtol=1e-9)


def through_pickle(model: Any) -> Any:
    return pickle.loads(pickle.dumps(model))


@everything
def test_copies_compute_the_same(family: str, options: dict) -> None:
    model = grown(build(family, **options)).eval()
    copies = [copy.deepcopy(model)]
    if "quant_noise_pq" not in options:  # whose hooks cannot be pickled
        copies.append(through_pickle(model))
    for copied in copies:
        assert torch.equal(scores(copied, family), scores(model, family))


def test_every_architecture_of_fairseq_has_ours() -> None:
    for model in ("transformer", "transformer_lm", "lightconv", "lightconv_lm"):
        ours = ARCH_MODEL_INV_REGISTRY[f"tied_{model}"]
        assert sorted(ours) == sorted(f"tied_{arch}" for arch in ARCH_MODEL_INV_REGISTRY[model])
        assert all(ARCH_MODEL_REGISTRY[arch].__module__.startswith("fairseq_tiedemb.") for arch in ours)
