"""The recipe for feed-forward language models: which commands it runs, what it refuses, and a run on a few lines."""

import re
from pathlib import Path

import pytest
from fairseq import options

from .corpora import write_ptb
from .shell import RECIPES, command_of, dry_run, option, refusal, run_recipe

SCRIPT = "train-lecture-nnlm.sh"
FULL = "--activation-fn relu --skip-connections --dropout 0.2 --output-layer nce --noise-samples 500 --lr 0.003"
ROWS = {
    "bengio": "--arch bengio_lm",
    "plain": "--arch feedforward_lm --deep-output none",
    "deep-untied": "--arch feedforward_lm",
    "deep-tied": "--arch feedforward_lm_wt",
    "relu-dropout": f"--arch feedforward_lm_wt {FULL} --max-update 9300",
}


def prepared(folder: Path) -> Path:
    """A folder for RUNS in which the corpus is there already."""
    (folder / "ptb" / "bin").mkdir(parents=True)
    return folder


@pytest.mark.parametrize("row", ROWS)
def test_a_row_is_its_preset_with_the_options_that_its_name_says(row: str, tmp_path: Path) -> None:
    commands = dry_run(SCRIPT, row, RUNS=prepared(tmp_path))
    train, folder = command_of(commands, "fairseq-train"), f"{tmp_path}/ptb/{row}-1"
    assert train[4 : train.index("--seed")] == ROWS[row].split()
    assert option(train, "--save-dir") == folder
    args = options.parse_args_and_arch(options.get_training_parser(), train[1:])
    assert (args.batch_size, args.tokens_per_sample, args.task) == (200, 5, "contiguous_lm")
    assert args.max_update == (9300 if row == "relu-dropout" else 2790)
    scores = [words for words in commands if words[0] == "fairseq-eval-lm"]
    assert [option(words, "--gen-subset") for words in scores] == ["valid", "test"]
    assert {option(words, "--path") for words in scores} == {f"{folder}/checkpoint_last.pt"}
    [mix] = [words for words in commands if "--interpolate" in words]
    at = mix.index("--interpolate")
    assert mix[at + 1 : at + 3] == [f"{folder}/valid.words", f"{folder}/test.words"]
    assert option(mix, "--held-out") == f"{tmp_path}/ptb/text/valid.txt"
    streams = [option(words, "--per-word") for words in commands if "--stream" in words]
    assert streams == mix[at + 1 : at + 3]
    header = (RECIPES / SCRIPT).read_text().partition("source")[0]
    line = next(line for line in header.splitlines() if line.startswith(f"#   {row} "))
    assert ROWS[row].split(" --activation")[0] in line


def test_the_200_rows_are_spread_over_gpus(tmp_path: Path) -> None:
    train = command_of(dry_run(SCRIPT, "bengio", RUNS=prepared(tmp_path), GPUS=4), "fairseq-train")
    assert (option(train, "--distributed-world-size"), option(train, "--batch-size")) == ("4", "50")


@pytest.mark.parametrize(
    ("args", "message"), [([], "needs one ROW; got 0 arguments"), (["wt"], "ROW: needs bengio, .*; got wt")]
)
def test_refused_rows(args: list[str], message: str, tmp_path: Path) -> None:
    assert re.search(message, refusal(SCRIPT, *args, RUNS=tmp_path))


@pytest.mark.slow
def test_whole_recipe(tmp_path: Path) -> None:
    variables = {**write_ptb(tmp_path / "source", train=500, held_out=50), "RUNS": tmp_path / "runs", "SMOKE": 1}
    process = run_recipe(SCRIPT, "relu-dropout", **variables, GPUS=0)
    assert process.returncode == 0, process.stderr
    text = (tmp_path / "runs/ptb-smoke/text/test.txt").read_text()
    counts = re.findall(r"Evaluated ([\d,]+) tokens.*\n.*Perplexity: [\d.]+", process.stdout)
    assert int(counts[-1].replace(",", "")) == len(text.replace("\n", " . ").split())
