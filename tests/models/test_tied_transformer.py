"""Our forms of fairseq's models: with `plain` exactly fairseq's, with every method the papers' equations."""

import copy
import pickle
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from fairseq.models import ARCH_MODEL_INV_REGISTRY, ARCH_MODEL_REGISTRY

from fairseq_tiedemb import products

from .. import reference
from ..crossing import crossed
from .common import PREVIOUS, grown
from .families import (
    ALL,
    BANDS,
    CHARACTERS,
    DECODER,
    FAMILIES,
    SHARINGS,
    TRANSLATION,
    WORDS,
    build,
    every_family,
    inputs,
    scores,
)

# a tensor of adaptive input that fairseq neither initialises nor reads
UNUSED = "_float_tensor"
LANGUAGE_MODELS = ("transformer_lm", "lightconv_lm")
VOCABULARY = [word for word in range(len(WORDS)) if word != WORDS.pad()]
RANK = 6
# with fairseq's own ways of building an embedding
EVERYTHING = {
    **SHARINGS,
    **{f"{family}-bands": (family, BANDS) for family in LANGUAGE_MODELS},
    **{f"{family}-cutoff": (family, {"adaptive_softmax_cutoff": "8,16"}) for family in FAMILIES},
    "transformer_lm-bands-proj": ("transformer_lm", {**BANDS, "tie_adaptive_proj": True}),
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


@pytest.fixture(params=products.WAYS)
def library(request: pytest.FixtureRequest) -> Iterator[None]:
    """Each of torch's libraries in turn."""
    with products.multiplying_by(request.param):
        yield


@everything
@pytest.mark.usefixtures("library")
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


@everything
def test_checkpoints_load_both_ways_and_copies_compute_the_same(family: str, options: dict) -> None:
    theirs = grown(theirs_of(family, options)).eval()
    ours = build(family, seed=4, **options).eval()
    expected = scores(theirs, family).detach()
    assert not torch.equal(scores(ours, family), expected)
    ours.load_state_dict(copy.deepcopy(theirs.state_dict()))
    copies = [ours, copy.deepcopy(ours)]
    if "quant_noise_pq" not in options:  # whose hooks cannot be pickled
        copies.append(pickle.loads(pickle.dumps(ours)))
    assert all(torch.equal(scores(model, family), expected) for model in copies)
    back = theirs_of(family, options, seed=5).eval()
    back.load_state_dict(copy.deepcopy(ours.state_dict()))
    assert torch.equal(scores(back, family), expected)


@every_family
def test_plain_decodes_step_by_step_as_fairseq_does(family: str) -> None:
    theirs, ours = (build(family, ours=ours, **DECODER).eval() for ours in (False, True))
    for found, expected in zip(steps(ours, family), steps(theirs, family), strict=True):
        if family == "transformer":  # by steps of our own: see test_search.py
            torch.testing.assert_close(found, expected)
        else:
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


def features_of(model: Any, family: str) -> torch.Tensor:
    """What goes into the output layer."""
    seen: list[torch.Tensor] = []
    hook = model.decoder.output_projection.register_forward_pre_hook(lambda _, args: seen.append(args[0]))
    scores(model, family)
    hook.remove()
    return seen[0].detach()


# Every way to share, whole and factorised.
TABLES = [(sharing, rank) for sharing in SHARINGS for rank in (None, RANK)]


@pytest.mark.parametrize(("sharing", "method"), crossed(TABLES, reference.SCORES))
def test_vectors_and_scores_are_those_of_the_papers(sharing: tuple[str, int | None], method: str) -> None:
    (family, options), rank = SHARINGS[sharing[0]], sharing[1]
    model = grown(build(family, sharing_method=method, embedding_rank=rank, **options)).double().eval()
    output = model.decoder.output_projection
    assert (model.decoder.embed_tokens.weight is output.weight) == bool(options)
    for part in (getattr(model, "encoder", model.decoder), model.decoder):
        rows, factor = part.embed_tokens.weight.detach(), np.eye(16)
        assert rows.shape == (len(WORDS), rank or 16)
        if rank is not None:
            factor = part.embed_tokens.projection.weight.detach().numpy()
        vectors = part.embed_tokens(torch.tensor(VOCABULARY)).detach()
        expected = [factor @ reference.input_vector(method, rows[word].numpy()) for word in VOCABULARY]
        np.testing.assert_allclose(vectors, expected, rtol=1e-9)
    found, features = scores(model, family).detach(), features_of(model, family).numpy()
    table, factor = output.weight.detach().numpy(), np.eye(16)
    if rank is not None:
        factor = output.factor.weight.detach().numpy()
    for index in np.ndindex(*PREVIOUS.shape):
        expected = [reference.score(method, table[word], factor @ features[index]) for word in VOCABULARY]
        np.testing.assert_allclose(found[index][VOCABULARY], expected, rtol=1e-9, atol=1e-12)


def test_every_architecture_of_fairseq_has_ours() -> None:
    for model in ("transformer", "transformer_lm", "lightconv", "lightconv_lm"):
        ours = ARCH_MODEL_INV_REGISTRY[f"tied_{model}"]
        assert sorted(ours) == sorted(f"tied_{arch}" for arch in ARCH_MODEL_INV_REGISTRY[model])
        assert all(ARCH_MODEL_REGISTRY[arch].__module__.startswith("fairseq_tiedemb.") for arch in ours)


@pytest.mark.parametrize(
    ("dtype", "length", "fused"),
    [(torch.bfloat16, 512, False), (torch.bfloat16, 513, True), (torch.float16, 9, False), (torch.float32, 9, True)],
)
def test_attention_of_short_texts_in_half_precision(dtype: torch.dtype, length: int, fused: bool) -> None:
    """It is the same, to rounding, and not by torch's fused kernel; float32 is fairseq's, bit for bit."""
    model = build("transformer_lm", tokens_per_sample=600, max_target_positions=600).eval()
    tokens = torch.randint(4, len(WORDS), (2, length), generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        exact = model.double().extract_features(tokens)[0]
        with torch.profiler.profile() as seen:
            features = model.to(dtype).extract_features(tokens)[0]
    assert any("flash_attention" in event.key for event in seen.key_averages()) == fused
    torch.testing.assert_close(features.double(), exact, rtol=0, atol=1e-5 if dtype == torch.float32 else 0.1)
