"""The recipe for the lecture's output layers."""

import json
import re
from pathlib import Path

import pytest
from fairseq import options

from .corpora import write_ptb
from .shell import command_of, dry_run, option, refusal, run_recipe

RECIPE = "train-lecture-output-layers.sh"
FILE = "classes.txt"
LAYERS = {
    "softmax": "softmax",
    "classes": "classes",
    "classes-exchange": f"classes --class-file {FILE}",
    "nce": "nce --noise-samples 500",
    "nce-100": "nce --noise-samples 100",
    "nce-100-own": "nce --noise-samples 100 --own-noise",
    "sampled": "sampled --noise-samples 500",
    "tree": "tree",
    "tree-exchange": f"tree --tree classes --class-file {FILE}",
    "short-list": "short-list --short-list 2000",
    "short-list-5000": "short-list --short-list 5000",
}


@pytest.mark.parametrize("arch", ["feedforward_lm", "zaremba_lm_small"])
@pytest.mark.parametrize("layer", LAYERS)
def test_commands_of_a_row(layer: str, arch: str, tmp_path: Path) -> None:
    (tmp_path / "ptb" / "bin").mkdir(parents=True)
    commands = dry_run(RECIPE, layer, RUNS=tmp_path, ARCH=arch)
    train, file = command_of(commands, "fairseq-train"), f"{tmp_path}/ptb/{FILE}"
    expected = ["--arch", arch, "--output-bias-init", "unigram", "--output-layer", *LAYERS[layer].split()]
    assert train[4 : train.index("--seed")] == [file if each == FILE else each for each in expected]
    args = options.parse_args_and_arch(options.get_training_parser(), train[1:])
    assert args.batch_size == (200 if arch == "feedforward_lm" else 20)
    made = [words[words.index("classes") + 1 :] for words in commands if "classes" in words and "train" not in words[0]]
    assert made == [[f"{tmp_path}/ptb/bin", "--classes", "100", "--output", file]] * layer.endswith("-exchange")
    assert [option(words, "--gen-subset") for words in commands if words[0] == "fairseq-eval-lm"] == ["valid", "test"]


def test_classes_are_made_once(tmp_path: Path) -> None:
    (tmp_path / "ptb" / "bin").mkdir(parents=True)
    (tmp_path / "ptb" / FILE).touch()
    commands = dry_run(RECIPE, "tree-exchange", RUNS=tmp_path)
    assert not [words for words in commands if "classes" in words and "train" not in words[0]]


@pytest.mark.parametrize(
    ("row", "message"), [((), "needs one LAYER; got 0"), (("shrub",), "LAYER: needs softmax, .*; got shrub")]
)
def test_other_rows_are_refused(row: tuple, message: str, tmp_path: Path) -> None:
    assert re.search(message, refusal(RECIPE, *row, RUNS=tmp_path))


@pytest.mark.slow
def test_whole_recipe(tmp_path: Path) -> None:
    source = write_ptb(tmp_path / "source", train=500, held_out=50)
    variables = {"ARCH": "feedforward_lm", "RESULTS": tmp_path / "results"}
    process = run_recipe(RECIPE, "tree-exchange", **source, RUNS=tmp_path / "runs", SMOKE=1, GPUS=0, **variables)
    assert process.returncode == 0, process.stderr
    [result] = (tmp_path / "results").rglob("*.json")
    assert (
        json.loads(result.read_text())["command"]
        == f"SMOKE=1 GPUS=0 ARCH=feedforward_lm recipes/{RECIPE} tree-exchange"
    )
    assert "perplexity of the class bigram model" in process.stdout
    assert "Perplexity: " in process.stdout.splitlines()[-1]
