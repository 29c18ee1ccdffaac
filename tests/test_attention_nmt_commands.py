"""DL4MT and its LSTM form through fairseq's commands: recipes, training in all its ways, decoding, and refusals.

Each command runs in a process of its own once; where only its options differ, its `main` is called here, which is
quicker. What is rarer is marked slow.
"""

import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from fairseq_tiedemb.models.attention_nmt import AttentionNMTModel

from .conftest import USER_DIR, InProcess, MadeOnce, RunCommand
from .runs import model_state, printed
from .test_compat_commands import logged, losses, noise

CONFIG = USER_DIR / "config"
PRESETS = tuple(f"{name}{tied}" for name in ("dl4mt", "lstm_nmt", "lstm_nmt_small") for tied in ("", "_wt", "_twwt"))
WIDTHS = ("encoder_embed_dim", "encoder_hidden_size", "decoder_embed_dim", "decoder_hidden_size")
WIDTHS += ("decoder_out_embed_dim",)


def sizes(width: int) -> list[str]:
    """Flags that give every layer one width."""
    return [part for name in WIDTHS for part in ("--" + name.replace("_", "-"), str(width))]


COMMON = (*sizes(16), "--dropout", "0", "--log-format", "json", "--num-workers", "0", "--clip-norm", "1")
TIED = (*COMMON, "--criterion", "tied_cross_entropy")
ADAM = ("--optimizer", "adam", "--lr", "1e-2")
LSTM = ("--arch", "lstm_nmt_twwt", *TIED, *ADAM)
BRIEF = ("--batch-size", "20", "--max-epoch", "2", "--no-save")


@pytest.fixture
def generate(generate: InProcess) -> InProcess:
    """`generate(data, *flags)` of conftest.py, of a few short sentences at a time."""
    return lambda data, *flags: generate(data, "--batch-size", 7, "--max-len-b", 15, *flags)


def hypotheses(text: str) -> dict[int, tuple[float, str]]:
    """Score and words of every hypothesis."""
    pairs = {number: line.split("\t") for number, line in printed(text, "H").items()}
    return {number: (float(score), words) for number, (score, words) in pairs.items()}


# --- recipes for fairseq-hydra-train ---------------------------------------------------------------------------------


def test_every_preset_has_its_recipe() -> None:
    assert {path.stem for name in ("dl4mt", "lstm_nmt") for path in CONFIG.glob(f"{name}*.yaml")} == set(PRESETS)


def hydra_settings(data: Path, folder: Path) -> list[str]:
    """Everything that a recipe is not about, and tiny sizes."""
    settings = [f"model.{name}=16" for name in WIDTHS]
    settings += [f"task.data={data}", f"checkpoint.save_dir={folder}", "common.log_format=json"]
    return [*settings, "dataset.num_workers=0", "optimization.max_update=4"]


ADADELTA = (
    "--optimizer adadelta --adadelta-rho 0.95 --adadelta-eps 1e-6 --lr 1.0 --lr-scheduler fixed --sentence-avg "
    "--batch-size 80 --max-source-positions 50 --max-target-positions 50"
).split()


def test_hydra_trains_what_the_command_line_trains(
    run_command: RunCommand, train: InProcess, parallel_data: Path, tmp_path: Path
) -> None:
    """By the preset alone, and by flags that say all of it."""
    settings = hydra_settings(parallel_data, tmp_path / "hydra")
    name = ("--config-dir", CONFIG, "--config-name", "dl4mt_wt")
    hydra = run_command("hydra-train", *name, *settings, cwd=tmp_path)
    flags = ("--arch", "dl4mt_wt", *TIED, *ADADELTA, "--max-update", 4)
    command_line = train(parallel_data, *flags, "--save-dir", tmp_path / "command_line")
    preset = ("--arch", "dl4mt_wt", *sizes(16), "--log-format", "json", "--num-workers", 0, "--max-update", 4)
    by_preset = train(parallel_data, *preset, "--no-save")
    assert losses(hydra.stdout) == losses(command_line) == losses(by_preset) != []
    # Tied: one table, though no flag says so.
    assert "dl4mt_wt: shares decoder input = decoder output (weight tying)" in hydra.stdout
    state = model_state(tmp_path / "hydra")
    assert torch.equal(state["decoder.embed_tokens.weight"], state["decoder.output.weight"])
    torch.testing.assert_close(state, model_state(tmp_path / "command_line"))


# --- training --------------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("average", [(), ("--sentence-avg",)])
def test_four_batches_an_update_are_one_of_four_times_the_size(
    average: tuple[str, ...], train: InProcess, parallel_data: Path
) -> None:
    """Where both are the whole corpus, whose sentences would otherwise be grouped by length in other ways."""
    flags = (*LSTM, *average, "--max-epoch", 3, "--no-save")
    texts = [
        train(parallel_data, *flags, "--batch-size", 100 // parts, "--update-freq", parts, "--batch-size-valid", 20)
        for parts in (1, 4)
    ]
    for name in ("train_loss", "train_nll_loss", "train_gnorm", "valid_loss"):
        assert logged(texts[0], name) == pytest.approx(logged(texts[1], name), abs=2e-3), name  # three digits are shown


# --- translation -----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def translator(run_command: RunCommand, parallel_data: Path, made_once: MadeOnce) -> tuple[Path, Any]:
    """Checkpoints of a three-way tied model that has begun to learn, and the command that trained it."""
    flags = (*LSTM, "--batch-size", 20, "--max-epoch", 6, "--save-interval", 6, "--save-dir")
    return made_once("lstm_nmt_twwt", lambda folder: run_command("train", parallel_data, *flags, folder))


@pytest.fixture
def path(translator: tuple[Path, Any]) -> tuple[str, Path]:
    """`--path` and the last checkpoint."""
    return "--path", translator[0] / "checkpoint_last.pt"


def test_training_says_what_is_shared(translator: tuple[Path, Any]) -> None:
    folder, command = translator
    assert "lstm_nmt_twwt: shares encoder input = decoder input = decoder output" in command.stdout
    # 16 words of width 16, and 16 biases.
    assert "parameters: encoder input = decoder input = decoder output 272, rest " in command.stdout
    assert noise(command.stdout + command.stderr) == []
    state = model_state(folder)
    tables = [value for name, value in state.items() if name.endswith(("embed_tokens.weight", "output.weight"))]
    assert len(tables) == 3
    assert all(torch.equal(value, tables[0]) for value in tables)


def test_every_sentence_is_translated_and_aligned_with_its_own_words(
    run_command: RunCommand, generate: InProcess, path: tuple[str, Path], parallel_data: Path
) -> None:
    flags = (*path, "--beam", 5, "--max-len-b", 15, "--print-alignment")
    text = run_command("generate", parallel_data, *flags, "--batch-size", 7).stdout
    assert sorted(printed(text, "H")) == list(range(100))
    for number, source in printed(text, "S").items():
        pairs = [tuple(map(int, pair.split("-"))) for pair in printed(text, "A")[number].split()]
        targets = len(hypotheses(text)[number][1].split())
        assert all(0 <= i < len(source.split()) + 1 and 0 <= j < targets + 1 for i, j in pairs)
    few = (*flags, "--gen-subset", "valid")
    text = generate(parallel_data, *few)
    # Padded on the left, on the right and not at all: the same translations, aligned in the same way.
    for other in ("--left-pad-source",), ("--batch-size", 1):
        again = generate(parallel_data, *few, *other)
        assert printed(again, "A") == printed(text, "A")
        for number, (score, words) in hypotheses(text).items():
            assert hypotheses(again)[number] == (pytest.approx(score, abs=1e-5), words)


@pytest.mark.slow
def test_ensembles(
    train: InProcess, generate: InProcess, path: tuple[str, Path], parallel_data: Path, tmp_path: Path
) -> None:
    """Twice the same model changes nothing; another architecture may join in."""
    few = ("--gen-subset", "valid", "--beam", 3)
    alone = hypotheses(generate(parallel_data, *few, *path))
    twice = hypotheses(generate(parallel_data, *few, "--path", f"{path[1]}:{path[1]}"))
    for number, (score, words) in alone.items():
        assert twice[number] == (pytest.approx(score, abs=1e-5), words)
    train(parallel_data, "--arch", "dl4mt", *TIED, *ADAM, "--batch-size", 20, "--max-epoch", 1, "--save-dir", tmp_path)
    text = generate(parallel_data, *few, "--path", f"{path[1]}:{tmp_path / 'checkpoint_last.pt'}")
    assert len(hypotheses(text)) == 20


def test_from_pretrained_translates(path: tuple[str, Path], parallel_data: Path, generate: InProcess) -> None:
    text = generate(parallel_data, *path, "--beam", 5, "--max-len-b", 200, "--gen-subset", "valid")
    folder, name = path[1].parent, path[1].name
    hub = AttentionNMTModel.from_pretrained(str(folder), name, str(parallel_data), user_dir=str(USER_DIR))
    sources = printed(text, "S")
    expected = [hypotheses(text)[number][1] for number in range(5)]
    assert hub.translate([sources[number] for number in range(5)], beam=5) == expected
    assert hub.models[0].encoder.embed_tokens is hub.models[0].decoder.output.head


# --- refusals --------------------------------------------------------------------------------------------------------


def test_dictionaries_that_differ_are_refused_before_anything_is_written(
    train: InProcess, parallel_data: Path, tmp_path: Path
) -> None:
    apart = shutil.copytree(parallel_data, tmp_path / "apart")
    with (apart / "dict.tgt.txt").open("a") as dictionary:
        dictionary.write("else 1\n")
    message = ": needs one dictionary .* 16 and 17 words.* fairseq-preprocess --joined-dictionary"
    for arch in (("lstm_nmt_twwt",), ("dl4mt", "--share-all-embeddings")):
        with pytest.raises(ValueError, match=arch[-1] + message):
            train(apart, "--arch", *arch, *TIED, *ADAM, "--batch-size", 20, "--save-dir", tmp_path / "checkpoints")
    assert list((tmp_path / "checkpoints").iterdir()) == []
    assert "weight tying" in train(apart, "--arch", "lstm_nmt_wt", *TIED, *ADAM, *BRIEF)


@pytest.mark.slow
def test_from_pretrained_in_a_fresh_process_with_subwords(
    path: tuple[str, Path], parallel_data: Path, tmp_path: Path
) -> None:
    """The plugin is named by `user_dir` alone, as for a model that fairseq does not know."""
    codes = tmp_path / "codes"
    codes.write_text("#version: 0.2\na b\n")
    code = (
        "from fairseq.models import BaseFairseqModel\n"
        f"hub = BaseFairseqModel.from_pretrained({str(path[1].parent)!r}, {path[1].name!r}, {str(parallel_data)!r}, "
        f"user_dir={str(USER_DIR)!r}, bpe='subword_nmt', bpe_codes={str(codes)!r})\n"
        "print('translation', repr(hub.translate('a b c', beam=5)))\n"
    )
    process = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=600)
    assert process.returncode == 0, process.stderr
    assert re.search(r"translation '[a-j ]*'", process.stdout)
