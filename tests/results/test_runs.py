"""`fairseq-tiedemb report RUN...`: the page of a user's own trainings."""

import re
from argparse import Namespace
from pathlib import Path

import pytest
import torch

from fairseq_tiedemb import cli
from fairseq_tiedemb.results import runs

from ..conftest import Cli
from .logs import BLEU, EVAL_LM, TRAIN, USAGE


def write_run(folder: Path, log: str = TRAIN) -> Path:
    folder.mkdir()
    for name, text in (("train.log", log), ("score-test.log", EVAL_LM.format(99.5)), ("test.bleu", BLEU.format(42.74))):
        (folder / name).write_text(text)
    (folder / "usage.jsonl").write_text(USAGE)
    (folder / "attention.svg").write_text("<svg/>")
    (folder / "plots.svg").mkdir()  # is no picture
    return folder


def test_a_folder_with_a_log(tmp_path: Path) -> None:
    run = runs.read_training(write_run(tmp_path / "a"), "a")
    assert run.best() == (1, 300.25), "the lowest that is finite"
    assert (run.parameters, run.epochs) == (4652402, 2)
    assert run.figures == {"test ppl": 99.5, "test BLEU": 42.74}
    # What is off or not set is left out; an expression that is no constant stays as it is.
    assert run.options == {
        "common.seed": "1",
        "common.user_dir": "x",
        "model._name": "m",
        "model.dropout": "0.3",
        "model.limit": "-inf",
        "model.layers": "[1, 2]",
    }
    assert run.usage is not None
    assert run.usage.cpu_seconds == 90.5


def test_a_section_that_is_the_whole_command_has_what_is_its_own(tmp_path: Path) -> None:
    """fairseq's SGD, which has no options class, gets all arguments: from logs and from checkpoints."""
    settings = (
        "{'_name': None, 'common': {'no_progress_bar': True, 'seed': 1}, 'model': {'_name': 'm', 'cell': 'lstm'}, "
    )
    settings += "'optimizer': Namespace(no_progress_bar=True, seed=1, cell='lstm', momentum=0.9)}"
    (tmp_path / "train.log").write_text(f"x | INFO | fairseq_cli.train | {settings}\n")
    expected = {"common.no_progress_bar": "True", "common.seed": "1", "model._name": "m", "model.cell": "lstm"}
    expected |= {"optimizer.momentum": "0.9"}
    assert runs.read_training(tmp_path, "a").options == expected
    (tmp_path / "train.log").unlink()
    optimizer = Namespace(no_progress_bar=True, seed=1, cell="lstm", momentum=0.9)
    cfg = {"common": {"no_progress_bar": True, "seed": 1}, "model": {"_name": "m", "cell": "lstm"}}
    torch.save(
        {"cfg": {**cfg, "optimizer": optimizer}, "model": {"w": torch.zeros(2)}}, tmp_path / "checkpoint_last.pt"
    )
    assert runs.read_training(tmp_path, "a").options == expected


def test_trainings_on_different_data_are_told_apart() -> None:
    same, other = ({"task.data": "a"}, {"task.data": "b"})
    for options, notes in (([same, same, {}], ()), ([same, other], (runs.DATA_DIFFER,))):
        (section,) = runs.sections([runs.Training(str(n), options=each) for n, each in enumerate(options)])
        assert section.paragraphs == notes


def test_a_log_that_breaks_off_in_its_settings(tmp_path: Path) -> None:
    first, _, rest = TRAIN.partition("\n")
    log = tmp_path / "train.log"
    log.write_text(f"{first[:80]}\n{rest}")
    assert runs.read_training(log, "a").options == {}


def test_a_folder_with_checkpoints(tmp_path: Path) -> None:
    extra = {"best": 5.25, "val_loss": 6.0, "train_iterator": {"epoch": 3}}
    state = {"cfg": {"common": {"seed": 1}}, "args": None, "model": {"w": torch.zeros(2)}, "extra_state": extra}
    torch.save(state, tmp_path / "checkpoint_last.pt")
    run = runs.read_training(tmp_path, "a")
    assert (run.epochs, run.best_loss, run.options) == (3, 5.25, {"common.seed": "1"})
    state |= {"cfg": None, "args": Namespace(seed=2)}
    torch.save(state, tmp_path / "checkpoint_best.pt")
    assert runs.read_training(tmp_path, "a").options == {"seed": "2"}


@pytest.mark.parametrize(("batches", "epochs"), [(7, 3), (0, 2)])  # after an epoch fairseq saves the next one's number
def test_epochs_of_a_checkpoint_are_those_that_have_begun(batches: int, epochs: int, tmp_path: Path) -> None:
    place = {"epoch": 3, "iterations_in_epoch": batches}
    state = {"cfg": {}, "model": {"w": torch.zeros(2)}, "extra_state": {"train_iterator": place}}
    torch.save(state, tmp_path / "checkpoint_last.pt")
    assert runs.read_training(tmp_path, "a").epochs == epochs


def test_what_a_checkpoint_has_in_the_place_of_numbers(tmp_path: Path) -> None:
    for extra in ({"train_iterator": 5, "best": 10**400}, {"train_iterator": {"epoch": "x"}, "best": "y"}):
        torch.save({"cfg": {}, "model": {"w": torch.zeros(2)}, "extra_state": extra}, tmp_path / "checkpoint_last.pt")
        run = runs.read_training(tmp_path, "a")
        assert (run.epochs, run.best_loss) == (None, None)


def test_settings_and_sizes_that_are_none(tmp_path: Path) -> None:
    (tmp_path / "train.log").write_text(
        "x | INFO | fairseq_cli.train | {'_name': None, 'common': {'seed': 1}}, 5\n"
        "x | INFO | fairseq_cli.train | num. shared model params: , (num. trained: 1)\n"
    )
    run = runs.read_training(tmp_path, "a")
    assert (run.options, run.parameters) == ({}, None)


def test_names_that_are_no_unicode(tmp_path: Path) -> None:
    run = write_run(tmp_path / "a\udcff")
    assert cli.main(["report", str(run), "--output", str(tmp_path)]) == 0
    assert r"a\udcff" in (tmp_path / "report.html").read_text()


def test_the_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write_run(tmp_path / "wt")
    layers = "encoder_layers='[(512, 3)] * 9 + [(1024, 3)] * 4', dropout=0.5, save_interval_updates=9"
    write_run(tmp_path / "untied", TRAIN.replace("dropout=0.3", layers))
    assert cli.main(["report", "wt", "untied"]) == 0
    first = Path("report.html").read_text()
    fconvs = "<code>[(512, 3)] * 9 + [(1024, 3)] * 4</code>"  # which Markdown would make italic
    for part in ("99.50", "42.74", "300.25", "<code>model.dropout</code>", fconvs, "attention", "1.5"):
        assert part in first
    assert re.findall(r"<text[^>]*>(wt|untied)</text>", first) == ["wt", "untied"], "the legend"
    differing = first.partition("Options that differ")[2].partition("</table>")[0]
    assert "model.dropout" in differing
    assert "common.seed" not in differing
    assert "save_interval_updates" not in differing, "of a recipe, whose checkpoints have another number than its log"
    # Two names of one option: the last one holds.
    assert cli.main(["report", "wt", "untied", "--html", "untied", "--output", "wt"]) == 0
    assert Path("wt/report.html").read_text() == first
    assert not Path("untied/report.html").exists()


LOSSES = TRAIN.replace("ppl", "rate")  # are no perplexities
DIVERGED = re.sub(r"ppl \S+", "ppl 1.26765e+30", TRAIN.partition("epoch 002")[0])


@pytest.mark.parametrize(
    ("log", "scores", "cells"),
    [
        (LOSSES, EVAL_LM.format(99.5), ["4,652,402", "99.50", "no perplexities in train.log"]),
        (TRAIN.partition("num.")[0], "", ["42.74", "no perplexities in train.log; no finite figure in score-test.log"]),
        (TRAIN, EVAL_LM.format("nan"), ["300.25", "no finite figure in score-test.log"]),
        (DIVERGED, EVAL_LM.format(99.5), ["99.50", "1.268e+30"]),
    ],
    ids=["losses", "first-epoch", "no-score", "diverged"],
)
def test_what_a_run_does_not_have_is_said(log: str, scores: str, cells: list[str], tmp_path: Path) -> None:
    """Beside a whole one, which is shown as ever; a line of the table, whatever the run lacks."""
    write_run(tmp_path / "whole")
    (write_run(tmp_path / "part", log) / "score-test.log").write_text(scores)
    assert cli.main(["report", str(tmp_path / "whole"), str(tmp_path / "part"), "--output", str(tmp_path)]) == 0
    page = (tmp_path / "report.html").read_text()
    drawn = ["whole"] if "no perplexities in train.log" in cells[-1] else ["whole", "part"]
    assert re.findall(r"<text[^>]*>(whole|part)</text>", page) == drawn
    whole, part = page.partition("<tbody>")[2].partition("</tbody>")[0].strip().splitlines()
    assert "300.25" in whole
    for cell in cells:
        assert f">{cell}</td>" in part
        assert ("no " in cell) <= (cell not in whole)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("none", "RUN: needs a file that can be read; got {path} (No such file or directory)."),
        ("empty", "RUN: needs a folder with train.log, checkpoint_best.pt or checkpoint_last.pt, or a log"),
        ("text", "or a log of fairseq-train; got {path}, which is neither. Use mkdir -p FOLDER, then fairseq-train"),
        ("damaged", "RUN: "),
    ],
)
def test_refused(name: str, message: str, tmp_path: Path, cli: Cli) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "text").write_text("text")
    (tmp_path / "damaged").mkdir()
    (tmp_path / "damaged/checkpoint_last.pt").write_text("text")
    path = tmp_path / name
    stderr = cli("report", path, "--output", tmp_path, status=2).err
    assert message.format(path=path) in stderr
    assert str(path) in stderr
    assert not (tmp_path / "report.html").exists()


def test_refused_usage(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = write_run(tmp_path / "run")
    empty = "needs a line for each run; got none."
    for text, line in (("", empty), ("{}\n", 1), (USAGE + "[]\n", 4), (USAGE + "{", 4)):
        (run / "usage.jsonl").write_text(text)
        assert cli.main(["report", str(run), "--output", str(tmp_path)]) == 2
        said = f"got another line {line}." if isinstance(line, int) else line
        assert said in capsys.readouterr().err


def test_without_a_training(cli: Cli) -> None:
    assert "RUN: needs a training; got none." in cli("report", status=2).err
