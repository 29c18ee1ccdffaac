"""Every recipe that trains or measures rows of a table: its commands in a dry run, held to one list of facts."""

import re
import shlex
import subprocess
from argparse import Namespace
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from bookkeeping.data import read_tables
from fairseq import options
from fairseq.dataclass.utils import convert_namespace_to_omegaconf

import fairseq_tiedemb.plugin  # noqa: F401 (registers the presets)

from .facts import APART, FACTS, INGREDIENTS, ROWS, SCORES
from .shell import RECIPES, environment, option, prepared, refusal

Commands = list[list[str]]


def dry_runs(script: str, rows: list[str], **variables: object) -> dict[str, Commands]:
    """The words of each command, by row, of all rows of a recipe: in one shell, as each would be in its own."""
    each = 'for row in "$@"; do echo "=== $row"; (read -ra words <<<"$row"; source "$0" "${words[@]}") || exit; done'
    command = ["bash", "-c", each, str(RECIPES / script), *rows]
    process = subprocess.run(command, env=environment(DRY_RUN=1, **variables), capture_output=True, text=True)
    assert process.returncode == 0, process.stderr
    parts = process.stdout.split("=== ")[1:]
    return {row: [shlex.split(line) for line in part.splitlines()[1:]] for row, part in zip(rows, parts, strict=True)}


def few(script: str) -> dict[str, str]:
    """The rows that train something: all with the first words before the last one, and two with any others."""
    groups: dict[str, list[str]] = {}
    for row in [row for row, given in ROWS[script].items() if given is not None]:
        groups.setdefault(row.rpartition(" ")[0], []).append(row)
    first, *others = groups.values()
    return {row: str(ROWS[script][row]) for row in (*first, *(group[at] for group in others for at in (0, -1)))}


def rows_of_tables() -> dict[str, list[str]]:
    """The words that the tables' commands have after the name of each recipe."""
    rows: dict[str, list[str]] = {}
    for table in read_tables(RECIPES / "tables", flag="--tables"):
        for row in table.rows:
            name, _, words = (row.command or "").rpartition("recipes/")[2].partition(" ")
            assert (RECIPES / name).exists() or not name.startswith(("train", "measure")), row.command
            if name in ROWS and words not in rows.setdefault(name, []):
                rows[name].append(words)
    return rows


def test_every_row_of_the_tables_is_here() -> None:
    assert {name: sorted(words) for name, words in rows_of_tables().items()} == {
        name: sorted(rows) for name, rows in ROWS.items()
    }
    without_rows = {"measure-lecture-ngrams.sh", "measure-tables3-4.sh"}
    assert {path.name for kind in ("train", "measure") for path in RECIPES.glob(f"{kind}-*.sh")} - without_rows == {
        *ROWS
    }


def trainings(commands: Commands) -> Iterator[list[str]]:
    return (words for words in commands if words[0] == "fairseq-train")


def rest(train: list[str], given: str) -> str:
    """A training without what sets its row apart, every option of which must be there."""
    words, work = " ".join(train), train[1].rpartition("/")[0]
    for option_ in re.split(r" (?=--)", given.format(work=work).strip()):
        assert f" {option_} " in f"{words} ", words
        words = words.replace(f" {option_}", "", 1)
    return words.replace(option(train, "--save-dir"), "FOLDER").replace("/joint ", "/bin ")


def settings(train: list[str]) -> dict[str, Any]:
    """What fairseq makes of a training's command, model and task included."""
    args = options.parse_args_and_arch(options.get_training_parser(), train[1:])
    cfg = convert_namespace_to_omegaconf(args)
    sections = [vars(each) if isinstance(each, Namespace) else dict(each or {}) for each in (cfg.model, cfg.task)]
    return {**sections[0], **sections[1], **vars(args)}


def test_every_row_with_settings_has_one_without() -> None:
    """A recipe accepts the words of a row without its settings, too, and records them."""
    for table in read_tables(RECIPES / "tables", flag=""):
        names = {row.name for row in table.rows}
        assert {re.sub(r",[A-Z_]+=.*", "", name) for name in names} <= names, table.name


@pytest.mark.parametrize("script", SCORES)
def test_rows(script: str, tmp_path: Path) -> None:
    """The commands of the rows: options that set them apart, the papers' settings, scores, a folder for each."""
    rows = few(script)
    made = set(prepared(tmp_path).rglob("*"))
    dry = dry_runs(script, [*rows], RUNS=tmp_path, GPUS=4)
    assert set(tmp_path.rglob("*")) == made, "DRY_RUN=1 must do nothing"
    rests: dict[str, set[str]] = {}
    folders = set()
    for row, given in rows.items():
        # Ready to be pasted: each begins with a program, and not with what marks a command.
        assert all(words and words[0][0].isalpha() for words in dry[row])
        [train] = trainings(dry[row])
        options.parse_args_and_arch(options.get_training_parser(), train[1:])
        folders.add(option(train, "--save-dir"))
        # Three-way tying alone needs one dictionary; the others have the paper's two.
        assert train[1].endswith("/joint") == (script == "train-table8-dl4mt.sh" and row.endswith(" twwt"))
        *before, last = row.split()
        if last not in APART:
            rests.setdefault(" ".join(before), set()).add(rest(train, given))
        check_scores(script, row, dry[row], train)
    assert len(folders) == len(rows)
    assert {before: len(different) for before, different in rests.items()} == dict.fromkeys(rests, 1)
    found = settings(next(trainings(dry[next(iter(rows))])))
    assert {name: found[name] for name in FACTS[script]} == FACTS[script]


def test_each_row_of_ingredients_differs_in_one(tmp_path: Path) -> None:
    prepared(tmp_path)
    dry = dry_runs("train-small-record.sh", [*INGREDIENTS], RUNS=tmp_path, GPUS=0)
    found = {row: settings(next(trainings(commands))) for row, commands in dry.items()}
    for row, others in INGREDIENTS.items():
        same = {name: value for name, value in found[row].items() if value == found["all"][name]}
        apart = {name: value for name, value in found[row].items() if name not in same}
        assert {name: apart[name] for name in others} == others
        assert apart.keys() - others.keys() <= {"save_dir", "log_file"}, row


def check_scores(script: str, row: str, commands: Commands, train: list[str]) -> None:
    """A row's own model is scored on the text that it was trained on, with the recipe's search."""
    subsets, expected = SCORES[script]
    scores = [words for words in commands if words[0] in ("fairseq-eval-lm", "fairseq-generate")]
    splits = subsets.split() + ["test1"] * row.startswith("en-de")
    if row in INGREDIENTS:  # which are compared on the validation set alone
        splits.remove("test")
    assert [option(words, "--gen-subset") for words in scores] == splits
    folder = option(train, "--save-dir")
    if row.startswith("rhn"):
        expected = {"--path": "checkpoint_best.pt"}
    for words in scores:
        assert words[1] == train[1]
        assert option(words, "--path").startswith(f"{folder}/")
        assert {name: option(words, name).removeprefix(f"{folder}/") for name in expected} == expected
    logs = [words[words.index(">") + 1] for words in commands if ">" in words]
    assert f"{folder}/train.log" not in logs, "the training's log must stay"


@pytest.mark.parametrize("script", ROWS)
def test_a_smoke_run_and_what_is_refused(script: str, tmp_path: Path) -> None:
    row = [*ROWS[script]][-1]
    words = row.split()
    commands = dry_runs(script, [row], SMOKE=1, RUNS=tmp_path, FROM=tmp_path)[row]
    assert "-smoke/" in str(commands)
    names = [words[0] for words in commands]
    for train in trainings(commands):
        options.parse_args_and_arch(options.get_training_parser(), train[1:])
        assert names.index("fairseq-preprocess") < names.index("fairseq-train")
    assert f"got {len(words) - 1} arguments. Use " in refusal(script, *words[1:], RUNS=tmp_path)
    for place in range(len(words)):
        wrong = words[place][:-1]
        said = refusal(script, *words[:place], wrong, *words[place + 1 :], RUNS=tmp_path)
        assert words[place] in said.partition(f"; got {wrong}.")[0].partition("needs ")[2].replace(",", "").split()
