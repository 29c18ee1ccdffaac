"""--output-layer and --output-bias-init: the counts they read, where biases start, and what checkpoints carry."""

import copy
import re
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

from fairseq_tiedemb.models import _counts
from fairseq_tiedemb.models._counts import training_counts
from fairseq_tiedemb.outputs import OUTPUT_HEADS, OutputHead

from ..conftest import Evaluate, InProcess, MadeOnce, RunCommand
from . import families, recurrent_lms
from .common import grown
from .plans import family_and_settings

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
    here = families.task_of(words, words)
    here.args = SimpleNamespace(data=":".join(map(str, folders)))
    return here


def build(task: Any, arch: str = "tied_lstm_lm", **options: Any) -> Any:
    model_class, cfg = family_and_settings(arch, options)
    return model_class.build_model(cfg, task)


def test_words_outside_a_short_list_are_as_probable_as_asked_for(folders: list[Path]) -> None:
    for shares, kinds in (("counts", 2), ("uniform", 1)):
        options = {"output_layer": "short-list", "short_list": 1, "short_list_shares": shares}
        head = build(task(folders), **options).output.head
        outside = head.log_share[(head.log_share < 0) & head.log_share.isfinite()]
        assert len(outside) > 2
        assert len(outside.unique()) == kinds


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


@pytest.mark.parametrize("arch", ["tied_lstm_lm", "transformer_lm"])
def test_the_training_text_is_counted_once(arch: str, folders: list[Path], monkeypatch: pytest.MonkeyPatch) -> None:
    """For the noise and for the biases, of a text that may take minutes."""
    read: list[Any] = []
    opened = _counts.open_stream
    monkeypatch.setattr(_counts, "open_stream", lambda *args, **kwargs: (read.append(args), opened(*args, **kwargs))[1])
    build(task(folders), arch, output_layer="nce")
    assert len(read) == len(folders)


def test_words_beyond_the_output_dictionary_count_as_unknown(folders: list[Path]) -> None:
    here, expected = task(folders), training_counts(task(folders))
    assert expected is not None
    here.target_dictionary = copy.deepcopy(here.source_dictionary)
    del here.target_dictionary.symbols[6:]
    counts = training_counts(here)
    assert counts is not None
    unknown = here.target_dictionary.unk()
    assert counts.sum() == expected.sum()
    assert counts[unknown] == expected[unknown] + expected[6:].sum() > 0


def test_a_word_that_the_dictionary_lacks_is_named(folders: list[Path]) -> None:
    here = task(folders)
    del here.source_dictionary.symbols[5:]
    with pytest.raises(ValueError, match="split train: needs word indices below .*, the size of dict.txt; got "):
        training_counts(here)


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


def test_an_own_layer_has_the_rows_that_it_names(folders: list[Path], monkeypatch: pytest.MonkeyPatch) -> None:
    """More than words, too: for a start of its own, say."""
    own = OutputHead("own", "", lambda options, table, *_: table, own_rows=lambda options, size: size + 2)
    monkeypatch.setitem(OUTPUT_HEADS, "own", own)
    here = task(folders)
    model = build(here, output_layer="own", output_bias_init="zero")
    assert len(model.output.weight) == len(here.target_dictionary) + 2


LAYERS = [name for name, head in OUTPUT_HEADS.items() if head.has_probabilities]
# Every layer on the LSTM, and on fairseq's models.
ON_MODELS = [("tied_lstm_lm", name) for name in LAYERS] + [("transformer_lm", name) for name in LAYERS]
ON_MODELS += [("lightconv_lm", "classes"), ("highway_lm", "adaptive")]
every_layer = pytest.mark.parametrize(("arch", "layer"), ON_MODELS)
OPTIONS: dict[str, dict[str, Any]] = {
    "short-list": {"short_list": 2},
    "adaptive": {"adaptive_softmax_cutoff": "5,6", "adaptive_softmax_factor": 1.0},
}


@every_layer
def test_checkpoints_carry_the_counts_and_keep_the_tables_names(arch: str, layer: str, folders: list[Path]) -> None:
    here = task(folders)
    options = {"output_layer": layer, **OPTIONS.get(layer, {})}
    model = build(here, arch, **options)
    assert model.plan.head == layer
    state = model.state_dict()
    assert {"decoder.embed_tokens.weight"} <= state.keys()
    here.args.data = ""
    torch.manual_seed(2)
    other = build(here, arch, **options)
    other.load_state_dict(state)
    other.eval(), model.eval()
    words = torch.randint(4, len(here.target_dictionary), (2, 5))
    net_input = {"src_tokens": words, "src_lengths": torch.tensor([5, 5])}
    found, expected = other.log_prob(words, **net_input), model.log_prob(words, **net_input)
    torch.testing.assert_close(found, expected, rtol=0, atol=0)


@every_layer
def test_a_models_probabilities_are_those_of_its_search(arch: str, layer: str, folders: list[Path]) -> None:
    """Where a search has a state, and where it has none: fairseq divides what the decoder returns by a temperature."""
    model = grown(build(task(folders), arch, output_layer=layer, **OPTIONS.get(layer, {}))).eval()
    tokens = torch.tensor([[2, 4, 5], [2, 6, 4]])
    whole = model.get_normalized_probs(model(tokens), log_probs=True)
    torch.testing.assert_close(whole.exp().sum(-1), torch.ones_like(whole[..., 0]))
    found = model.log_prob(tokens, src_tokens=tokens, src_lengths=torch.tensor([3, 3]))
    torch.testing.assert_close(whole.gather(2, tokens.unsqueeze(2)).squeeze(2), found)
    expected = whole[:, -1:]
    state: dict = {}
    for last in range(1, 4):
        scores, _ = model.decoder(tokens[:, :last], incremental_state=state)
        scores, _ = scores.clone(), scores[:, -1:].div_(3)  # as fairseq does by --temperature, which no state may see
    found = model.get_normalized_probs((scores[:, -1:], None), log_probs=True)
    torch.testing.assert_close(found, expected)
    if layer != "adaptive":  # whose decoder returns features
        warmer = model.get_normalized_probs((scores[:, -1:] / 2, None), log_probs=True)
        torch.testing.assert_close(warmer, (expected / 2).log_softmax(-1))
    alone, _ = model.decoder(tokens)
    torch.testing.assert_close(model.get_normalized_probs((alone[:, -1:], None), log_probs=True), expected)


SMALL = ("--decoder-embed-dim", 16, "--decoder-layers", 1, "--decoder-attention-heads", 2)
TRAINING = ("--optimizer", "adam", "--lr", 1e-2, "--batch-size", 20, "--max-epoch", 2, "--no-epoch-checkpoints")
TEXT = ("--task", "language_modeling", "--sample-break-mode", "eos", "--tokens-per-sample", 20)


@pytest.mark.parametrize(
    ("arch", "flags"),
    [
        ("tied_transformer_lm_gpt2_tiny", ("--output-layer", "classes", "--share-decoder-input-output-embed")),
        ("tied_lightconv_lm", ("--output-layer", "nce", "--noise-samples", 7, "--decoder-kernel-size-list", "[3]")),
    ],
)
def test_a_transformer_with_an_output_layer_is_trained_resumed_and_scored(
    arch: str, flags: tuple, train: InProcess, evaluate: Evaluate, lm_data: Path, tmp_path: Path
) -> None:
    """The perplexity of fairseq-eval-lm is that of validation: exact, also after a surrogate loss."""
    common = ("--arch", arch, *SMALL, *flags, *TRAINING, *TEXT, "--num-workers", 0, "--log-format", "json")
    log = train(lm_data, *common, "--criterion", "tied_cross_entropy", "--save-dir", tmp_path)
    [_, last] = [float(found) for found in re.findall(r'"valid_nll_loss": "([\d.]+)"', log)]
    assert "Loaded checkpoint" in train(
        lm_data, *common, "--criterion", "tied_cross_entropy", "--save-dir", tmp_path, "--max-epoch", 3, "--no-save"
    )
    path = ("--path", tmp_path / "checkpoint_last.pt", "--gen-subset", "valid", "--batch-size", 7)
    assert evaluate(lm_data, *path, *TEXT[2:])[1] == pytest.approx(2**last, rel=1.3e-3)
