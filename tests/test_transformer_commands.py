"""The Transformer and LightConv families through fairseq's commands: training, decoding, scoring, and refusals.

A family's commands run in processes of their own once; where only options differ, their `main` is called here.
"""

import re
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from fairseq import options
from fairseq.models import ARCH_MODEL_REGISTRY

import fairseq_tiedemb.plugin  # noqa: F401 (which makes fairseq load checkpoints safely)

from .conftest import Evaluate, InProcess, RunCommand, configuration
from .runs import model_state, printed
from .test_compat_commands import logged, losses

# of every family: flags of a tiny model
SIDES = ("encoder", "decoder")
SMALL = [flag for side in SIDES for flag in (f"--{side}-embed-dim", "32", f"--{side}-ffn-embed-dim", "32")]
TRANSFORMER = ["--arch", "tied_transformer_tiny", *SMALL]
DYNAMICCONV = ["--arch", "tied_lightconv_iwslt_de_en", *SMALL, "--encoder-layers", "2", "--decoder-layers", "2"]
DYNAMICCONV += [flag for side in SIDES for flag in (f"--{side}-kernel-size-list", "[3]", f"--{side}-conv-dim", "32")]
TRANSFORMER_LM = ["--arch", "tied_transformer_lm_gpt2_tiny", "--decoder-embed-dim", "32"]
LIGHTCONV_LM = ["--arch", "tied_lightconv_lm", *SMALL[4:], "--decoder-layers", "2", "--decoder-kernel-size-list", "[3]"]
TRAINING = ("--optimizer", "adam", "--lr", "1e-2", "--log-format", "json", "--num-workers", "0", "--batch-size", "20")
TRAINING += ("--max-epoch", "2", "--no-epoch-checkpoints", "--dropout", "0.1")
THREE_WAY, TIED = "--share-all-embeddings", "--share-decoder-input-output-embed"
LANGUAGE_MODELING = ("--task", "language_modeling", "--sample-break-mode", "eos", "--tokens-per-sample", "20")
OURS = ("--criterion", "tied_cross_entropy")
BANDS = ["--adaptive-input", "--tie-adaptive-weights", "--criterion", "adaptive_loss", "--ddp-backend", "legacy_ddp"]
BANDS += ["--adaptive-input-cutoff", "13", "--adaptive-softmax-cutoff", "13"]
BANDS += ["--adaptive-input-factor", "2", "--adaptive-softmax-factor", "2"]


@pytest.fixture
def train(train: InProcess) -> Callable[..., str]:
    """`train(data, *flags)` of conftest.py, for these models."""
    return lambda data, *flags: train(data, *TRAINING, *flags)


def test_a_transformer_is_trained_and_decodes_in_processes_of_its_own(
    run_command: RunCommand, parallel_data: Path, tmp_path: Path
) -> None:
    flags = (*TRANSFORMER, THREE_WAY, "--sharing-method", "l2-input", *OURS, "--label-smoothing", "0.1")
    training = run_command("train", parallel_data, *flags, *TRAINING, "--save-dir", tmp_path)
    found = logged(training.stdout + training.stderr, "train_loss")
    assert len(found) == 2
    assert found[1] < found[0]
    assert "shares encoder input = decoder input = decoder output (three-way weight tying) by method l2-input" in (
        training.stdout + training.stderr
    )
    state = model_state(tmp_path)
    assert torch.equal(state["encoder.embed_tokens.weight"], state["decoder.output_projection.weight"])
    path = ("--path", tmp_path / "checkpoint_last.pt", "--max-len-b", "15", "--num-workers", "0")
    generated = run_command("generate", parallel_data, *path, "--beam", "2", "--print-alignment")
    assert len(printed(generated.stdout, "H")) == 100
    assert "BLEU4" in generated.stdout


def test_a_language_model_is_trained_and_scored_in_processes_of_its_own(
    run_command: RunCommand, lm_data: Path, tmp_path: Path
) -> None:
    flags = (*TRANSFORMER_LM, TIED, "--sharing-method", "square-output", *OURS, *LANGUAGE_MODELING)
    training = run_command("train", lm_data, *flags, *TRAINING, "--save-dir", tmp_path)
    expected = logged(training.stdout + training.stderr, "valid_loss")[-1]
    path = ("--path", tmp_path / "checkpoint_last.pt", "--gen-subset", "valid", "--num-workers", "0")
    scored = run_command("eval-lm", lm_data, *path, "--batch-size", "7", *LANGUAGE_MODELING[2:])
    found = re.search(r"Loss \(base 2\): ([\d.]+)", scored.stdout + scored.stderr)
    assert found is not None
    assert float(found[1]) == pytest.approx(expected, abs=1e-3)


FAMILIES = {
    "transformer": (TRANSFORMER, [THREE_WAY]),
    "dynamicconv": (DYNAMICCONV, [TIED]),
    "transformer_lm": (TRANSFORMER_LM, [TIED, *LANGUAGE_MODELING]),
    "lightconv_lm": (LIGHTCONV_LM, [TIED, *LANGUAGE_MODELING]),
    "transformer_lm_bands": (TRANSFORMER_LM, [*BANDS, *LANGUAGE_MODELING]),
}


@pytest.mark.parametrize("family", FAMILIES)
def test_plain_trains_like_fairseqs_own(
    family: str, train: InProcess, parallel_data: Path, lm_data: Path, tmp_path: Path
) -> None:
    """Number by number, with dropout."""
    arch, flags = FAMILIES[family]
    data = lm_data if "lm" in family else parallel_data
    fairseqs = [flag.removeprefix("tied_") for flag in arch]
    theirs = train(data, *fairseqs, *flags, "--save-dir", tmp_path / "theirs")
    ours = train(data, *arch, *flags, "--save-dir", tmp_path / "ours")
    assert losses(ours) == losses(theirs)
    assert len(logged(ours, "train_loss")) == 2
    states = [model_state(tmp_path / name) for name in ("theirs", "ours")]
    assert list(states[0]) == list(states[1])
    for key, value in states[1].items():
        assert torch.equal(value, states[0][key]) or key.endswith(("conv.conv_bias", "_float_tensor")), key


@pytest.mark.parametrize("family", ["transformer", "dynamicconv"])
def test_our_criterion_trains_and_decodes(
    family: str, train: InProcess, generate: InProcess, parallel_data: Path, tmp_path: Path
) -> None:
    """The same numbers as with fairseq's criterion, up to rounding; and the model decodes."""
    arch, flags = FAMILIES[family]
    common = (*arch, *flags, "--sharing-method", "cosine", "--label-smoothing", "0.1", "--max-epoch", 1)
    theirs = train(parallel_data, *common, "--criterion", "label_smoothed_cross_entropy", "--no-save")
    ours = train(parallel_data, *common, *OURS, "--save-dir", tmp_path)
    for name in ("train_loss", "valid_loss"):
        assert logged(ours, name) == pytest.approx(logged(theirs, name), abs=2e-3)
    path = ("--path", tmp_path / "checkpoint_last.pt", "--max-len-b", "15", "--beam", "2", "--gen-subset", "valid")
    assert len(printed(generate(parallel_data, *path), "H")) == 20
    model = ARCH_MODEL_REGISTRY[arch[1]]
    hub = model.from_pretrained(str(tmp_path), "checkpoint_last.pt", str(parallel_data), beam=2)
    assert all(isinstance(each.translate("a b c"), str) for each in (hub, hub.half()))


@pytest.mark.parametrize("method", ["l2-input", "distance"])
def test_bands_are_trained_and_scored(
    method: str, train: InProcess, evaluate: Evaluate, lm_data: Path, tmp_path: Path
) -> None:
    arch, flags = FAMILIES["transformer_lm_bands"]
    more = ("--sharing-method", method, "--max-epoch", 1, "--save-dir", tmp_path)
    log = train(lm_data, *arch, *flags, *more)
    assert f"shares input = output in bands (weight tying) by method {method}" in log
    path = ("--path", tmp_path / "checkpoint_last.pt", "--gen-subset", "valid", "--batch-size", "7")
    perplexity = evaluate(lm_data, *path, *LANGUAGE_MODELING[2:])[1]
    assert perplexity == pytest.approx(2 ** logged(log, "valid_loss")[-1], rel=1e-3)


@pytest.mark.parametrize("family", ["transformer", "lightconv_lm"])
def test_factorised_models_are_trained_and_resumed(
    family: str, train: InProcess, parallel_data: Path, lm_data: Path, tmp_path: Path
) -> None:
    arch, flags = FAMILIES[family]
    data = lm_data if "lm" in family else parallel_data
    common = (*arch, *flags, "--embedding-rank", "8", "--sharing-method", "cosine", *OURS, "--save-dir", tmp_path)
    first = train(data, *common)
    assert model_state(tmp_path)["decoder.embed_tokens.table.weight"].shape[1] == 8
    more = train(data, *common, "--max-epoch", "3")
    assert logged(more, "train_loss")[-1] < logged(first, "train_loss")[-1]
    assert "Loaded checkpoint" in more


def test_presets_have_fairseqs_sizes(parallel_data: Path) -> None:
    for arch, expected in {
        "transformer_iwslt_de_en": (512, 1024, 4, 6),
        "transformer_vaswani_wmt_en_de_big": (1024, 4096, 16, 6),
        "lightconv_iwslt_de_en": (512, 1024, 4, 7),  # DynamicConv with 7 encoder blocks, as in Liu et al. 2020
        "lightconv_wmt_en_de_big": (1024, 4096, 16, 7),
    }.items():
        model = configuration(options.get_training_parser(), parallel_data, "--arch", f"tied_{arch}").model
        found = (model.encoder_embed_dim, model.encoder_ffn_embed_dim, model.encoder_attention_heads)
        assert (*found, model.encoder_layers) == expected
        assert model.decoder_layers == 6
        if "lightconv" in arch:
            assert model.encoder_conv_type == model.decoder_conv_type == "dynamic"
