"""The recipe of the lecture's self-normalised language models."""

import re
from pathlib import Path

import pytest
from fairseq import options

from .corpora import write_ptb
from .shell import RECIPES, command_of, dry_run, option, refusal, run_recipe

RECIPE = "train-lecture-self-normalised.sh"
UNIFORM, NOISE = ["--output-bias-init", "uniform"], ["--output-bias-init", "unigram", "--output-layer", "nce"]
ROWS = {f"alpha-{alpha}": [*UNIFORM, "--z-loss", alpha] for alpha in ("0", "0.01", "0.1", "1")}
ROWS["nce"] = [*NOISE, "--noise-samples", "500"]


@pytest.mark.parametrize("row", ROWS)
def test_commands_of_a_row(row: str, tmp_path: Path) -> None:
    (tmp_path / "ptb" / "bin").mkdir(parents=True)
    commands = dry_run(RECIPE, row, RUNS=tmp_path, ARCH="zaremba_lm_small")
    train, folder = command_of(commands, "fairseq-train"), f"{tmp_path}/ptb/zaremba_lm_small-self-normalised-{row}-1"
    assert train[4 : 6 + len(ROWS[row])] == ["--arch", "zaremba_lm_small", *ROWS[row]]
    args = options.parse_args_and_arch(options.get_training_parser(), train[1:])
    assert (args.z_loss, args.criterion) == (float(row.partition("-")[2] or 0), "tied_cross_entropy")
    assert [option(words, "--gen-subset") for words in commands if words[0] == "fairseq-eval-lm"] == ["valid", "test"]
    [score] = [words for words in commands if "score" in words]
    rest = score[score.index("score") + 1 :]
    assert rest == [
        *[f"{folder}/checkpoint_last.pt", f"{tmp_path}/ptb/text/valid.txt", "--data", f"{tmp_path}/ptb/bin"],
        *["--raw", "--raw-sample", "10000", ">", f"{folder}/raw-valid.log", "2>&1"],
    ]
    header = (RECIPES / RECIPE).read_text().partition("source")[0]
    line = next(line for line in header.splitlines() if line.startswith(f"#   {row} "))
    assert line.endswith(" ".join(ROWS[row]))


@pytest.mark.parametrize(
    ("row", "message"), [((), "needs one ROW; got 0"), (("alpha-2",), "ROW: needs .* got alpha-2")]
)
def test_other_rows_are_refused(row: tuple, message: str, tmp_path: Path) -> None:
    assert re.search(message, refusal(RECIPE, *row, RUNS=tmp_path))


@pytest.mark.slow
def test_a_row_says_how_far_scores_are_from_log_probabilities(tmp_path: Path) -> None:
    source = write_ptb(tmp_path / "source", train=500, held_out=50)
    process = run_recipe(RECIPE, "alpha-0.1", **source, RUNS=tmp_path / "runs", SMOKE=1, GPUS=0)
    assert process.returncode == 0, process.stderr
    assert "lecture (Arabic), alpha-0.1: log P -1.83, |log Z| 0.68; here, by sentences of valid:" in process.stdout
    assert "mean |log Z| " in process.stdout.splitlines()[-1]
