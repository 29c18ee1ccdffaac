"""--output-layer and --output-bias-init: the counts they read, where biases start, and what they refuse."""

import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from fairseq import options as fairseq_options
from fairseq import tasks
from fairseq.data import Dictionary
from fairseq.dataclass.utils import convert_namespace_to_omegaconf
from fairseq.models import ARCH_MODEL_REGISTRY

from fairseq_tiedemb.models._output_layer import DEFAULTS, OutputLayerConfig, training_counts
from fairseq_tiedemb.outputs import OUTPUT_HEADS, OutputHead

from ..conftest import MadeOnce, RunCommand
from . import recurrent_lms

TEXTS = (["a b b", "b", "c"], ["a a <pad>"])


@pytest.fixture(scope="session")
def folders(made_once: MadeOnce, run_command: RunCommand) -> list[Path]:
    """Two binarised training texts with one dictionary."""

    def make(folder: Path) -> None:
        for number, text in enumerate(TEXTS):
            (folder / f"{number}.txt").write_text("".join(f"{line}\n" for line in text))
            given = ["--srcdict", folder / "bin0/dict.txt"] if number else []
            options = ("--trainpref", folder / f"{number}.txt", "--destdir", folder / f"bin{number}", *given)
            run_command("preprocess", "--only-source", *options)

    folder, _ = made_once("counted", make)
    return [folder / f"bin{number}" for number in range(len(TEXTS))]


def task(folders: list[Path]) -> Any:
    words = Dictionary.load(str(folders[0] / "dict.txt"))
    return SimpleNamespace(
        args=SimpleNamespace(data=":".join(map(str, folders))), target_dictionary=words, source_dictionary=words
    )


def build(task: Any, **options: Any) -> Any:
    cfg = getattr(ARCH_MODEL_REGISTRY["tied_lstm_lm"], "__dataclass")(
        **{"decoder_embed_dim": 6, "decoder_hidden_size": 6, **options}
    )
    cfg._name = "tied_lstm_lm"
    return ARCH_MODEL_REGISTRY["tied_lstm_lm"].build_model(cfg, task)


def test_counts_are_those_of_all_binarised_texts_with_their_ends(folders: list[Path]) -> None:
    here = task(folders)
    counts = training_counts(here)
    words = here.target_dictionary
    expected = {"a": 3, "b": 3, "c": 1, "</s>": 4}
    assert counts is not None
    assert {word: int(counts[words.index(word)]) for word in expected} == expected
    # <pad> as a word of the second text, which the first one's dictionary knows as fairseq's own symbol.
    assert counts[words.pad()] == 1
    assert counts.sum() == 12


def test_there_are_no_counts_without_a_training_text(tmp_path: Path, folders: list[Path]) -> None:
    here = task(folders)
    for data in (None, "", str(tmp_path)):
        here.args.data = data
        assert training_counts(here) is None


def test_counts_are_those_of_the_text_that_is_trained_on(folders: list[Path], tmp_path: Path) -> None:
    shutil.copytree(folders[0], tmp_path / "bin")
    for ending in (".bin", ".idx"):
        shutil.copy(folders[1] / f"train{ending}", tmp_path / f"bin/other{ending}")
    found = []
    for split in ("train", "other"):
        command = [str(tmp_path / "bin"), "--task", "contiguous_lm", "--arch", "tied_lstm_lm", "--train-subset", split]
        arguments = fairseq_options.parse_args_and_arch(fairseq_options.get_training_parser(), command)
        found.append(training_counts(tasks.setup_task(convert_namespace_to_omegaconf(arguments).task)))
    for counts, folder in zip(found, folders, strict=True):
        torch.testing.assert_close(counts, training_counts(task([folder])))
    assert not found[0].equal(found[1])


def test_biases_start_as_they_are_told(folders: list[Path]) -> None:
    here = task(folders)
    counts = training_counts(here)
    assert counts is not None
    expected = {
        "zero": torch.zeros(len(counts)),
        "uniform": torch.full((len(counts),), 1 / len(counts)).log(),
        "unigram": (counts.clamp(min=1) / counts.clamp(min=1).sum()).log(),
    }
    for start, bias in expected.items():
        model = build(here, output_bias_init=start)
        torch.testing.assert_close(model.output.table.bias.detach(), bias)
    drawn = build(here).output.table.bias
    assert drawn.abs().max() <= 0.1
    assert drawn.unique().numel() > len(counts) // 2


def test_other_layers_start_at_the_words_frequencies(folders: list[Path]) -> None:
    here = task(folders)
    start = build(here, output_bias_init="unigram").output.table.bias
    torch.testing.assert_close(build(here, output_layer="nce").output.table.bias, start)


def test_without_a_training_text_a_model_is_built_for_a_checkpoint_alone() -> None:
    model = recurrent_lms.build(output_layer="nce")
    target = recurrent_lms.text(2, 5)[:, 1:]
    net_input = recurrent_lms.batch(recurrent_lms.text(2, 5))["net_input"]
    assert model.eval()(**net_input, target=target).loss.isfinite()
    with pytest.raises(ValueError, match=r"--output-layer nce: needs the counts .* without split train"):
        model.train()(**net_input, target=target)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"output_layer": "softmaks"}, r"--output-layer: needs a registered layer; got 'softmaks'"),
        ({"output_bias_init": "uni"}, r"--output-bias-init: needs one of zero, uniform, unigram; got uni"),
        ({"output_layer": "nce", "noise_samples": 0}, r"--noise-samples: needs 1 to 1,000,000; got 0"),
        ({"output_layer": "nce", "noise_samples": 10**12}, r"--noise-samples: needs .*; got 1000000000000"),
        ({"output_layer": "nce", "noise_power": -1.0}, r"--noise-power: needs a number in .0, 10.; got -1"),
        ({"output_layer": "nce", "noise_power": 1000.0}, r"--noise-power: needs .*; got 1000"),
        ({"output_layer": "nce", "noise_power": float("nan")}, r"--noise-power: needs .*; got nan"),
        ({"output_layer": "short-list"}, r"--short-list: needs 1 word or more with .* short-list; got 0"),
        (
            {"output_bias_init": "zero", "adaptive_softmax_cutoff": "8,12"},
            r"--output-bias-init: needs an output layer with biases; got zero with --adaptive-softmax-cutoff 8,12",
        ),
        (
            {"output_layer": "nce", "adaptive_softmax_cutoff": "8,12"},
            r"--output-layer nce: needs one table for all words; got --adaptive-softmax-cutoff 8,12",
        ),
    ],
    ids=str,
)
def test_refuses_options(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        recurrent_lms.build(**options)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"classes": 7}, r"--classes: needs --output-layer classes; got 7 with --output-layer softmax"),
        ({"noise_samples": 7}, r"--noise-samples: needs --output-layer nce or sampled; got 7 with --output-layer soft"),
        ({"output_layer": "tree", "noise_power": 0.5}, r"--noise-power: needs .* nce or sampled; got 0.5 with .* tree"),
        ({"own_noise": True}, r"--own-noise: needs --output-layer nce or sampled; got True"),
        ({"output_layer": "sampled", "noise_log_z": 9.0}, r"--noise-log-z: needs --output-layer nce; got 9.0 with"),
        ({"output_layer": "nce", "tree": "balanced"}, r"--tree: needs --output-layer tree; got balanced with .* nce"),
    ],
    ids=str,
)
def test_trains_with_no_option_that_has_no_use(options: dict[str, Any], message: str, folders: list[Path]) -> None:
    here = task(folders)
    model = build(here, **options)  # as a checkpoint of version 0.1.2 may have it
    cfg = SimpleNamespace(**DEFAULTS | options)
    with pytest.raises(ValueError, match=message):
        model.check_training(SimpleNamespace(takes_the_models_loss=True), cfg)


def test_a_beginning_that_is_predicted_needs_the_softmax(folders: list[Path]) -> None:
    options = SimpleNamespace(add_bos_token=True)
    criterion = SimpleNamespace(takes_the_models_loss=True, task=SimpleNamespace(args=options))
    model, cfg = build(task(folders), output_layer="nce"), SimpleNamespace(**DEFAULTS | {"output_layer": "nce"})
    with pytest.raises(ValueError, match="--add-bos-token: needs --output-layer softmax.*; got --output-layer nce"):
        model.check_training(criterion, cfg)
    options.add_bos_token, cfg.adaptive_softmax_cutoff, cfg.adaptive_softmax_factor = False, None, 4.0
    model.check_training(criterion, cfg)


def test_an_own_layer_has_the_rows_that_it_names(folders: list[Path], monkeypatch: pytest.MonkeyPatch) -> None:
    """More than words, too: for a start of its own, say."""
    own = OutputHead("own", "", lambda options, table, *_: table, own_rows=lambda options, size: size + 2)
    monkeypatch.setitem(OUTPUT_HEADS, "own", own)
    here = task(folders)
    model = build(here, output_layer="own", output_bias_init="zero")
    assert len(model.output.weight) == len(here.target_dictionary) + 2


@pytest.mark.parametrize("layer", OUTPUT_HEADS)
def test_the_help_names_every_output_layer(layer: str) -> None:
    assert layer in OutputLayerConfig.__dataclass_fields__["output_layer"].metadata["help"]


@pytest.mark.parametrize("layer", OUTPUT_HEADS)
def test_checkpoints_carry_the_counts_and_keep_the_tables_names(layer: str, folders: list[Path]) -> None:
    here = task(folders)
    options = {"output_layer": layer, "short_list": 2 if layer == "short-list" else 0}
    model = build(here, **options)
    state = model.state_dict()
    assert {"decoder.embed_tokens.weight"} <= state.keys()
    here.args.data = ""
    torch.manual_seed(2)
    other = build(here, **options)
    other.load_state_dict(state)
    other.eval(), model.eval()
    words = torch.randint(4, len(here.target_dictionary), (2, 5))
    net_input = {"src_tokens": words, "src_lengths": torch.tensor([5, 5])}
    found, expected = other.log_prob(words, **net_input), model.log_prob(words, **net_input)
    torch.testing.assert_close(found, expected, rtol=0, atol=0)


@pytest.mark.parametrize("layer", ["softmax", "tree", "classes"])
def test_a_search_may_divide_scores_by_its_temperature(layer: str, folders: list[Path]) -> None:
    """Where a search has a state, and where it has none: fairseq divides what the decoder returns."""
    model = build(task(folders), output_layer=layer).eval()
    tokens = torch.tensor([[2, 4, 5], [2, 6, 4]])
    expected = model.get_normalized_probs(model(tokens), log_probs=True)[:, -1:]
    torch.testing.assert_close(expected.exp().sum(-1), torch.ones_like(expected[..., 0]))
    scores, _ = model.decoder(tokens, incremental_state={})
    found = model.get_normalized_probs((scores[:, -1:], None), log_probs=True)
    torch.testing.assert_close(found, expected)
    warmer = model.get_normalized_probs((scores[:, -1:] / 2, None), log_probs=True)
    torch.testing.assert_close(warmer, (expected / 2).log_softmax(-1))
    alone, _ = model.decoder(tokens)
    torch.testing.assert_close(model.get_normalized_probs((alone[:, -1:], None), log_probs=True), expected)
