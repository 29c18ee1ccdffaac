"""The recipes of word embeddings: the text, the commands of each row, and a whole small training."""

import sys
import tarfile
from pathlib import Path

import pytest
from fairseq import options

import fairseq_tiedemb.plugin  # noqa: F401 (registers the presets)

from .shell import RECIPES, SHARED_DATA, command_of, dry_run, option, run_python, run_recipe

sys.path.insert(0, str(RECIPES))
from imdb_text import VALID

TIED = "--share-decoder-input-output-embed"
ROWS = {
    "untied": ["--arch", "word2vec_skipgram"],
    "tied": ["--arch", "word2vec_skipgram", TIED],
    "tied-cosine": ["--arch", "word2vec_skipgram", TIED, "--sharing-method", "cosine"],
    "full": ["--arch", "word2vec_skipgram", "--word2vec-output", "full"],
    "full-tied": ["--arch", "word2vec_skipgram", "--word2vec-output", "full", TIED],
    "full-tied-l2-input": [
        *("--arch", "word2vec_skipgram", "--word2vec-output", "full", TIED, "--sharing-method", "l2-input")
    ],
    "tree": ["--arch", "word2vec_skipgram", "--word2vec-output", "tree"],
    "cbow": ["--arch", "word2vec_cbow"],
    "cbow-tied": ["--arch", "word2vec_cbow", TIED],
}


def write_reviews(folder: Path, count: int = 12) -> Path:
    """Writes reviews as the archive has them."""
    for part in ("train/neg", "train/pos", "train/unsup", "test/neg", "test/pos"):
        (folder / part).mkdir(parents=True)
        for number in range(count):
            text = f"It's a {part[-3:]} FILM,<br /><br />rated {number}/10: caf\u00e9 scenes & a plot of sorts."
            (folder / part / f"{number}_7.txt").write_text(text, encoding="utf-8")
    return folder


def test_text(tmp_path: Path) -> None:
    process = run_python(RECIPES / "imdb_text.py", write_reviews(tmp_path / "aclImdb"), tmp_path)
    assert process.returncode == 0, process.stderr
    train, valid = ((tmp_path / f"{split}.txt").read_text().splitlines() for split in ("train", "valid"))
    assert (len(train), len(valid)) == (36, 24)
    assert train[0] == "it s a neg film rated caf scenes a plot of sorts"
    assert valid[12] == "it s a pos film rated caf scenes a plot of sorts"


def test_a_folder_without_reviews_is_refused(tmp_path: Path) -> None:
    process = run_python(RECIPES / "imdb_text.py", tmp_path, tmp_path)
    assert process.returncode == 1
    assert f"{tmp_path}/train/neg: needs reviews, *.txt; got none" in process.stderr


@pytest.mark.parametrize("row", ROWS)
def test_the_commands_of_a_row(row: str, tmp_path: Path) -> None:
    (tmp_path / "imdb/bin").mkdir(parents=True)
    commands = dry_run("train-table2.sh", row, RUNS=tmp_path, SEED=3)
    train = command_of(commands, "fairseq-train")
    assert train[train.index("--arch") : train.index("--subsampling")] == ROWS[row]
    assert option(train, "--max-update") == str(2 * 9849)
    assert option(train, "--save-dir") == f"{tmp_path}/imdb/{row}-3"
    args = options.parse_args_and_arch(options.get_training_parser(), train[1:])
    assert (args.task, args.criterion, args.optimizer, args.lr_scheduler) == (
        *("word_pairs", "word_pairs", "row_sgd", "polynomial_decay"),
    )
    assert args.lr == [0.05 if row.startswith("cbow") else 0.025]


def test_refused(tmp_path: Path) -> None:
    for args, variables, message in (
        ([], {}, "needs one ROW; got 0 arguments"),
        (["tide"], {}, "ROW: needs untied, tied, .* got tide"),
        (["tied"], {"EPOCHS": "two"}, "EPOCHS, UPDATES: need positive numbers; got two"),
    ):
        process = run_recipe("train-table2.sh", *args, RUNS=tmp_path, DRY_RUN=1, **variables)
        assert process.returncode == 1
        assert message.partition(" .*")[0] in process.stderr
        assert process.stdout == ""
    process = run_recipe("prepare-imdb.sh", RUNS=tmp_path, DRY_RUN=1, COUNTS="1 2")
    assert "COUNTS: needs tokens of train and valid, and types; got 1 2" in process.stderr


def test_the_corpus_is_prepared_where_it_is_missing(tmp_path: Path) -> None:
    names = [words[0] for words in dry_run("train-table2.sh", "tied", RUNS=tmp_path)]
    assert names.index("curl") < names.index("fairseq-preprocess") < names.index("fairseq-train")


@pytest.mark.slow
def test_whole_recipe(tmp_path: Path) -> None:
    write_reviews(tmp_path / "aclImdb", count=40)
    archive = tmp_path / "aclImdb.tar.xz"
    with tarfile.open(archive, "w:xz") as tar:
        tar.add(tmp_path / "aclImdb", "aclImdb")
    process = run_recipe("train-table2.sh", "tied", FROM=archive, RUNS=tmp_path / "runs", SMOKE=1)
    assert process.returncode == 0, process.stderr
    assert "| valid on 'valid' subset | loss" in process.stdout
    assert "decoder.embed_tokens.weight" in process.stdout


@pytest.mark.slow
def test_the_real_text(tmp_path: Path) -> None:
    archive = SHARED_DATA / "archives/aclImdb.tar.xz"
    if not archive.exists():
        pytest.skip(f"the reviews are not at {archive}")
    assert run_python(RECIPES / "unpack.py", archive, tmp_path / "all").returncode == 0
    assert run_python(RECIPES / "imdb_text.py", tmp_path / "all/aclImdb", tmp_path).returncode == 0
    words = {split: (tmp_path / f"{split}.txt").read_text().split() for split in ("train", "valid")}
    assert {split: len(found) for split, found in words.items()} == {"train": 17_801_506, "valid": 228_304}
    assert VALID == 500
