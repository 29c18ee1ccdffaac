"""Recipes for language models: which commands they run (DRY_RUN=1), what they refuse, and whole runs on a few lines."""

import re
import sys
from pathlib import Path

import pytest
from fairseq import options

from fairseq_tiedemb.ngram import SMOOTHINGS

from .corpora import write_ptb
from .shell import RECIPES, command_of, dry_run, option, refusal, run_recipe

# Each row of the papers' tables: script, row, corpus, what fairseq-train gets, the checkpoint that is scored.
ROWS = [
    ("train-table5-large.sh", "large", "ptb", ["--arch", "zaremba_lm_large"], "last"),
    ("train-table5-large.sh", "large-wt", "ptb", ["--arch", "zaremba_lm_large_wt"], "last"),
    ("train-table5-large.sh", "gal", "ptb", ["--arch", "gal_lm_large"], "last"),
    ("train-table5-large.sh", "gal-wt", "ptb", ["--arch", "gal_lm_large_wt"], "last"),
    ("train-table5-large.sh", "rhn", "ptb", ["--arch", "highway_lm_8x890"], "best"),
    ("train-table5-large.sh", "rhn-wt", "ptb", ["--arch", "highway_lm_9x860_wt"], "best"),
    ("train-table6-small.sh", "small", "ptb", ["--arch", "zaremba_lm_small"], "last"),
    ("train-table6-small.sh", "wt", "ptb", ["--arch", "zaremba_lm_small_wt"], "last"),
    ("train-table6-small.sh", "pr", "ptb", ["--arch", "zaremba_lm_small_pr"], "last"),
    ("train-table6-small.sh", "wt-pr", "ptb", ["--arch", "zaremba_lm_small_wt_pr"], "last"),
    (
        "train-table6-small.sh",
        "wt-pr-no-bias",
        "ptb",
        ["--arch", "zaremba_lm_small_wt_pr", "--no-projection-bias"],
        "last",
    ),
    (
        "train-table6-small.sh",
        "small-early-decay",
        "ptb",
        ["--arch", "zaremba_lm_small", "--force-anneal", "5"],
        "last",
    ),
    ("train-table7-bbc-small.sh", "small", "bbc", ["--arch", "zaremba_lm_small"], "last"),
    ("train-table7-bbc-small.sh", "wt", "bbc", ["--arch", "zaremba_lm_small_wt"], "last"),
    ("train-table7-bbc-small.sh", "pr", "bbc", ["--arch", "zaremba_lm_small_pr"], "last"),
    ("train-table7-bbc-small.sh", "wt-pr", "bbc", ["--arch", "zaremba_lm_small_wt_pr"], "last"),
    *(
        (f"train-table7-{name}-small.sh", row, folder, ["--arch", f"zaremba_lm_small{end}"], "last")
        for name, folder in (("imdb", "imdb-lm"), ("text8", "text8"))
        for row, end in (("small", ""), ("wt", "_wt"), ("pr", "_pr"), ("wt-pr", "_wt_pr"))
    ),
]
SCRIPTS = sorted({script for script, *_ in ROWS})


def prepared(folder: Path) -> Path:
    """A folder for RUNS in which the corpora are there already."""
    for corpus in ("ptb", "bbc", "imdb-lm", "text8"):
        (folder / corpus / "bin").mkdir(parents=True)
    return folder


@pytest.mark.parametrize(("script", "row", "corpus", "model", "checkpoint"), ROWS)
def test_commands_of_a_row(
    script: str, row: str, corpus: str, model: list[str], checkpoint: str, tmp_path: Path
) -> None:
    commands = dry_run(script, row, RUNS=prepared(tmp_path))
    folder = f"{tmp_path}/{corpus}/{row}-1"
    train = command_of(commands, "fairseq-train")
    assert train[1] == f"{tmp_path}/{corpus}/bin"
    # The recipe itself comes from the preset: nothing else is given that changes it.
    assert train[4:-1] == [
        *model,
        *["--seed", "1", "--distributed-world-size", "1"],
        *["--save-dir", folder, "--no-epoch-checkpoints", "--log-file", f"{folder}/train.log", "--log-format"],
    ]
    scores = [words for words in commands if words[0] == "fairseq-eval-lm"]
    assert [option(words, "--gen-subset") for words in scores] == (
        ["valid", "test"] if "table5" in script else ["train", "valid", "test"]
    )
    for words in scores:
        assert words[1] == train[1]
        assert option(words, "--path") == f"{folder}/checkpoint_{checkpoint}.pt"
        assert option(words, "--task") == "contiguous_lm"
    logs = {words[words.index(">") + 1] for words in commands if ">" in words}
    assert len(logs) == len(scores), "each score has a log of its own"
    assert f"{folder}/train.log" not in logs, "the training's log must stay"
    assert not (tmp_path / corpus / f"{row}-1").exists(), "DRY_RUN=1 must do nothing"


@pytest.mark.parametrize(("script", "row", "corpus", "model", "checkpoint"), ROWS)
def test_fairseq_understands_the_command_of_a_row(
    script: str, row: str, corpus: str, model: list[str], checkpoint: str, tmp_path: Path
) -> None:
    train = command_of(dry_run(script, row, RUNS=prepared(tmp_path), GPUS=4), "fairseq-train")
    args = options.parse_args_and_arch(options.get_training_parser(), train[1:])
    assert args.arch == model[1]
    # The command line has its say; what it does not say comes from the preset.
    assert args.batch_size == 5
    assert args.task == "contiguous_lm"
    assert args.sentence_avg


@pytest.mark.parametrize(("script", "row", "corpus", "model", "checkpoint"), ROWS)
def test_the_header_of_a_script_names_its_rows(
    script: str, row: str, corpus: str, model: list[str], checkpoint: str
) -> None:
    header = (RECIPES / script).read_text().partition("source")[0]
    line = next(line for line in header.splitlines() if line.startswith(f"#   {row} "))
    assert model[-1] in line.split(), "the command"
    assert "none: " in line or re.search(r"[\d.]+ / (?:[\d.]+|none) / [\d.]+", line), "the paper's numbers"
    for word in ("Press & Wolf", "table", "Hardware", "Expected", "Check"):
        assert word in header


def test_the_corpus_is_prepared_where_it_is_missing(tmp_path: Path) -> None:
    ptb = dry_run("train-table6-small.sh", "wt", RUNS=tmp_path)
    bbc = dry_run("train-table7-bbc-small.sh", "wt", RUNS=tmp_path)
    imdb = dry_run("train-table7-imdb-small.sh", "wt", RUNS=tmp_path)
    text8 = dry_run("train-table7-text8-small.sh", "wt", RUNS=tmp_path)
    for commands, downloads in ((ptb, 3), (bbc, 1), (imdb, 1), (text8, 1)):
        names = [words[0] for words in commands]
        assert names.count("curl") == downloads
        assert names.index("fairseq-preprocess") < names.index("fairseq-train")
        preprocess = command_of(commands, "fairseq-preprocess")
        assert option(preprocess, "--padding-factor") == "1"
        assert "--only-source" in preprocess


def test_kneser_ney_reads_the_same_text(tmp_path: Path) -> None:
    commands = dry_run("train-table6-small.sh", "kn5", RUNS=prepared(tmp_path))
    text = f"{tmp_path}/ptb/text"
    (command,) = commands
    # Where it is not installed, the checkout's is run.
    assert command[0] == "fairseq-tiedemb" or command[:4:2] == ["env", "python"]
    expected = ["ngram", f"{text}/train.txt", "--order", "5", "--test", f"{text}/valid.txt", f"{text}/test.txt"]
    assert command[-7:] == expected


def test_every_smoothing_method_is_measured_in_every_form(tmp_path: Path) -> None:
    commands = [words for words in dry_run("measure-lecture-ngrams.sh", RUNS=prepared(tmp_path)) if "ngram" in words]
    text = f"{tmp_path}/ptb/text"
    measured = set()
    for words in commands:
        begin = words.index("ngram")
        assert words[begin + 1] == f"{text}/train.txt"
        assert words[words.index("--test") + 1 : words.index("--test") + 3] == [f"{text}/test.txt", f"{text}/valid.txt"]
        form = "back-off" if "--back-off" in words else None
        measured.add((option(words, "--smoothing"), form, option(words, "--order")))
    expected = {
        (name, form if form != each.forms[0] else None, order)
        for name, each in SMOOTHINGS.items()
        for form in each.forms
        for order in "345"
    }
    assert measured == expected
    logs = [words[words.index(">") + 1] for words in commands]
    assert len(set(logs)) == len(logs) == 39


def test_the_table_of_smoothing_methods(tmp_path: Path) -> None:
    """Each row has the perplexities of its own command, test before valid."""
    programs = prepared(tmp_path) / "programs"
    programs.mkdir()
    says = "echo head; printf '  82,430 0 %s%s.5 %s\\n' ${#*} $4 $6 ${#*} 9 $7"
    (programs / "fairseq-tiedemb").write_text(f"#!/bin/bash\n{says}\n")
    (programs / "fairseq-tiedemb").chmod(0o755)
    process = run_recipe(
        "measure-lecture-ngrams.sh", RUNS=tmp_path, ORDERS="2 3", PATH=f"{programs}:{Path(sys.executable).parent}:/bin"
    )
    assert process.returncode == 0, process.stderr
    head, *table = process.stdout.rpartition("\n\n")[2].splitlines()
    assert head.split() == ["perplexity:", "test", "(valid)", "order", "2", "order", "3"]
    assert len(table) == 13
    # The program says its number of arguments and then the order, or 9 of the second text.
    assert table[-2].split() == ["modified", "Kneser-Ney", "92.5", "(99.5)", "93.5", "(99.5)"]
    assert table[-1].split() == ["modified", "Kneser-Ney,", "back-off", "102.5", "(109.5)", "103.5", "(109.5)"]


@pytest.mark.parametrize(
    ("gpus", "training", "scoring"),
    [
        ("0", ["--distributed-world-size", "1", "--cpu"], ["--distributed-world-size", "1", "--cpu"]),
        ("1", ["--distributed-world-size", "1", "--fp16", "--batch-size", "20"], ["--distributed-world-size", "1"]),
        ("4", ["--distributed-world-size", "4", "--fp16", "--batch-size", "5"], ["--distributed-world-size", "1"]),
        ("8", ["--distributed-world-size", "8", "--fp16", "--batch-size", "3"], ["--distributed-world-size", "1"]),
    ],
)
def test_gpus(gpus: str, training: list[str], scoring: list[str], tmp_path: Path) -> None:
    commands = dry_run("train-table5-large.sh", "large", RUNS=prepared(tmp_path), GPUS=gpus)
    train = command_of(commands, "fairseq-train")
    assert train[train.index("--seed") + 2 : train.index("--save-dir")] == training
    for score in (words for words in commands if words[0] == "fairseq-eval-lm"):
        assert score[score.index("200") + 1 : score.index(">")] == scoring


def test_settings_from_variables(tmp_path: Path) -> None:
    variables = {"SEED": 7, "SPLITS": "test", "PLUGIN": "/a/plugin"}
    commands = dry_run("train-table6-small.sh", "pr", RUNS=prepared(tmp_path), **variables)
    assert [words[0] for words in commands] == ["mkdir", "fairseq-train", "fairseq-eval-lm", "tail"]
    for words in commands[1:3]:
        assert option(words, "--user-dir") == "/a/plugin"
    assert option(commands[1], "--seed") == "7"
    assert option(commands[1], "--save-dir") == f"{tmp_path}/ptb/pr-7"


@pytest.mark.parametrize("script", SCRIPTS)
def test_refused_rows(script: str, tmp_path: Path) -> None:
    for args, message in (([], "needs one ROW; got 0 arguments"), (["twt"], r"ROW: needs \w.* or .*; got twt")):
        assert re.search(message, refusal(script, *args, RUNS=tmp_path))


def test_measuring_needs_no_arguments(tmp_path: Path) -> None:
    assert "needs no arguments; got 1" in refusal("measure-lecture-ngrams.sh", "katz", RUNS=tmp_path)


def test_refused_gpus(tmp_path: Path) -> None:
    assert "GPUS: needs a number; got two" in refusal(
        "train-table6-small.sh", "wt", RUNS=prepared(tmp_path), GPUS="two"
    )


def test_a_failed_score_shows_why(tmp_path: Path) -> None:
    programs = tmp_path / "programs"
    programs.mkdir()
    python = f'exec {sys.executable} "$@"'
    failing = (("fairseq-train", "true"), ("fairseq-eval-lm", "echo some reason >&2; exit 1"), ("python", python))
    for name, script in failing:
        (programs / name).write_text(f"#!/bin/sh\n{script}\n")
        (programs / name).chmod(0o755)
    process = run_recipe("train-table6-small.sh", "wt", RUNS=prepared(tmp_path), PATH=f"{programs}:/usr/bin:/bin")
    assert process.returncode == 1
    assert "some reason" in process.stderr
    assert f"all it said is in {tmp_path}/ptb/wt-1/score-train.log" in process.stderr


@pytest.mark.slow
@pytest.mark.parametrize(("script", "row"), [("train-table6-small.sh", "wt-pr"), ("train-table5-large.sh", "rhn-wt")])
def test_whole_recipe(script: str, row: str, tmp_path: Path) -> None:
    source = write_ptb(tmp_path / "source", train=500, held_out=50)
    variables = {**source, "RUNS": tmp_path / "runs", "SMOKE": 1, "GPUS": 0}
    process = run_recipe(script, row, **variables)
    assert process.returncode == 0, process.stderr
    scores = re.findall(r"Evaluated ([\d,]+) tokens.*\n.*Perplexity: ([\d.]+)", process.stdout)
    text = tmp_path / "runs/ptb-smoke/text"
    tokens = {split: (text / f"{split}.txt").read_text().replace("\n", " . ").split() for split in ("train", "test")}
    counts = [int(count.replace(",", "")) for count, _ in scores]
    assert counts[-1] == len(tokens["test"])
    assert len(counts) == 2 or counts[0] == len(tokens["train"])

    # Run again, as after an interruption: the checkpoint is loaded, and nothing trained once more.
    again = run_recipe(script, row, **variables)
    assert again.returncode == 0, again.stderr
    assert "Loaded checkpoint" in again.stdout
    assert "begin training epoch" not in again.stdout
    assert re.findall(r"Perplexity: ([\d.]+)", again.stdout) == [perplexity for _, perplexity in scores]


@pytest.mark.slow
def test_whole_kneser_ney(tmp_path: Path) -> None:
    source = write_ptb(tmp_path / "source", train=500, held_out=50)
    process = run_recipe("train-table6-small.sh", "kn5", **source, RUNS=tmp_path / "runs", SMOKE=1)
    assert process.returncode == 0, process.stderr
    assert f"{tmp_path}/runs/ptb-smoke/text/test.txt" in process.stdout
