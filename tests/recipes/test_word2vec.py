"""The recipes of word embeddings: the text, the commands of each row, and a whole small training."""

import json
import re
import sys
import tarfile
from pathlib import Path

import pytest
from fairseq import options

import fairseq_tiedemb.plugin  # noqa: F401 (registers the presets)

from .shell import RECIPES, SHARED_DATA, command_of, dry_run, option, refusal, run_python, run_recipe

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


def test_the_commands_of_a_row_on_penn_treebank(tmp_path: Path) -> None:
    (tmp_path / "ptb/bin").mkdir(parents=True)
    (tmp_path / "EN-VERB-143.txt").touch()
    commands = dry_run("train-table2.sh", "full-tied", RUNS=tmp_path, CORPUS="ptb", SETS=tmp_path)
    train = command_of(commands, "fairseq-train")
    assert train[1] == f"{tmp_path}/ptb/bin"
    assert train[train.index("--arch") : train.index("--subsampling")] == ROWS["full-tied"]
    assert (option(train, "--max-epoch"), option(train, "--max-update")) == ("20", str(20 * 468))
    # Not the folder of a language model that is called so.
    assert option(train, "--save-dir") == f"{tmp_path}/ptb/word2vec-full-tied-1"
    assert "correlation" not in {word for words in commands for word in words}


@pytest.mark.parametrize(
    ("row", "roles"), [("untied", ["in", "out", "sum"]), ("tied-cosine", ["tied"]), ("tree", ["in"])]
)
def test_what_is_measured(row: str, roles: list[str], tmp_path: Path) -> None:
    (tmp_path / "imdb/bin").mkdir(parents=True)
    for name in ("EN-VERB-143.txt", "b.txt", "questions"):
        (tmp_path / name).touch()
    commands = dry_run("train-table2.sh", row, RUNS=tmp_path, SETS=tmp_path, QUESTIONS=tmp_path / "questions")
    tables = [f"{tmp_path}/imdb/{row}-1/checkpoint_last.pt:{role}" for role in roles]
    for name, given in (
        ("similarity", ["--sets", f"{tmp_path}/EN-VERB-143.txt", f"{tmp_path}/b.txt"]),
        ("analogy", None),
    ):
        [words] = [words for words in commands if name in words]
        words = words[words.index(name) + 1 : words.index(">")]
        given = given or ["--questions", f"{tmp_path}/questions"]
        assert words == [*tables, "--dict", f"{tmp_path}/imdb/bin/dict.txt", *given]


def test_counts_are_not_trained(tmp_path: Path) -> None:
    (tmp_path / "imdb/bin").mkdir(parents=True)
    (tmp_path / "EN-VERB-143.txt").touch()
    commands = dry_run("train-table2.sh", "counts", RUNS=tmp_path, SETS=tmp_path)
    vectors = f"{tmp_path}/imdb/counts/vectors.txt"
    [words] = [words for words in commands if "counts" in words]
    assert words[words.index("counts") + 1 :] == [
        *(f"{tmp_path}/imdb/bin", "--window", "5", "--dim", "100", "--output", vectors)
    ]
    [words] = [words for words in commands if "similarity" in words]
    assert words[words.index("similarity") + 1] == vectors
    assert not {"fairseq-train", "norms"} & {word for words in commands for word in words}


def test_refused(tmp_path: Path) -> None:
    for args, variables, message in (
        ([], {}, "needs one ROW; got 0 arguments"),
        (["tide"], {}, "ROW: needs untied, tied, .* got tide"),
        (["tied-foo"], {}, "METHOD: needs plain, l2-input, square-output, distance or cosine; got foo"),
        (["full-tied-"], {}, "METHOD: needs plain, l2-input, square-output, distance or cosine; got ."),
        (["tied"], {"CORPUS": "text8"}, "CORPUS: needs imdb or ptb; got text8"),
        (["tied"], {"EPOCHS": "two"}, "EPOCHS, UPDATES: need positive numbers; got two"),
        (
            ["tied"],
            {"SETS": tmp_path},
            f"SETS: needs a folder with one or more of EN-SIMLEX-999.txt, .*; got '{tmp_path}'",
        ),
        (["tied"], {"QUESTIONS": tmp_path}, "QUESTIONS: needs SETS, too; got none"),
    ):
        assert message.partition(" .*")[0] in refusal("train-table2.sh", *args, RUNS=tmp_path, **variables)
    told = refusal("prepare-imdb.sh", RUNS=tmp_path, COUNTS="1 2")
    assert "COUNTS: needs tokens of train and valid, and types; got 1 2" in told


def test_the_corpus_is_prepared_where_it_is_missing(tmp_path: Path) -> None:
    names = [words[0] for words in dry_run("train-table2.sh", "tied", RUNS=tmp_path)]
    assert names.index("curl") < names.index("fairseq-preprocess") < names.index("fairseq-train")


@pytest.mark.slow
def test_whole_recipe(tmp_path: Path) -> None:
    write_reviews(tmp_path / "aclImdb", count=40)
    archive = tmp_path / "aclImdb.tar.xz"
    with tarfile.open(archive, "w:xz") as tar:
        tar.add(tmp_path / "aclImdb", "aclImdb")
    words = "a film rated caf scenes plot of sorts it s".split()
    (tmp_path / "sets").mkdir()
    pairs = zip(words, words[1:] + words[:1], range(10), strict=True)
    (tmp_path / "sets/EN-MEN-TR-3k.txt").write_text("".join(f"{a} {b} {n}\n" for a, b, n in pairs) + "no such 1\n")
    questions = f": of-all\n{' '.join(words[:4])}\n"
    (tmp_path / "questions").write_text(questions)
    results, variables = tmp_path / "results", {"RUNS": tmp_path / "runs", "SMOKE": 1}
    variables |= {"SETS": tmp_path / "sets", "QUESTIONS": tmp_path / "questions", "RESULTS": results}
    process = run_recipe("train-table2.sh", "tied", FROM=archive, **variables)
    assert process.returncode == 0, process.stderr
    assert "| valid on 'valid' subset | loss" in process.stdout
    assert "decoder.embed_tokens.weight" in process.stdout
    [result] = results.rglob("*.json")
    assert result.name == "tied-1.json"
    found = [name for name in json.loads(result.read_text())["figures"] if name.startswith("analogies")]
    assert sorted(found) == ["analogies-semantic", "analogies-total"]
    (tmp_path / "questions").write_text(f"{questions}: gram1\n{' '.join(words[4:8])}\n")
    process = run_recipe("train-table2.sh", "untied", **variables)
    assert process.returncode == 0, process.stderr
    assert sorted(path.name for path in (results / "table2").iterdir()) == [
        *("tied-1.json", "untied-in-1.json", "untied-out-1.json", "untied-sum-1.json")
    ]
    [rhos] = re.findall(r"^EN-MEN-TR-3k +10 +11" + 3 * r" +(-?0\.\d+) \([^)]*\)", process.stdout, re.M)
    for name, rho in zip(("untied-in", "untied-out", "untied-sum"), rhos, strict=True):
        result = json.loads((results / f"table2/{name}-1.json").read_text())
        found = {column: figure["value"] for column, figure in result["figures"].items()}
        assert found.pop("EN-MEN-TR-3k") == float(rho)
        assert sorted(found) == ["analogies-semantic", "analogies-syntactic", "analogies-total"]
        assert result["note"].startswith("EN-MEN-TR-3k: 10 of 11 pairs, ")
        assert result["note"].endswith("; analogies, total: 2 of 2")
        assert result["usage"]["runs"] == 1
    alike = json.loads((results / "table4/word2vec-1.json").read_text())["figures"]
    assert [*alike] == ["in-out", "in-tied", "out-tied"]
    process = run_recipe("train-table2.sh", "counts", **variables)
    assert process.returncode == 0, process.stderr
    assert "EN-MEN-TR-3k" in json.loads((results / "table2/counts.json").read_text())["figures"]


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
