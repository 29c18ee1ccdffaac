"""A user's own trainings as sections of a report: learning curves, best figures, options."""

import ast
import math
from argparse import Namespace
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fairseq_tiedemb.analysis.curves import Run, Series, finite, lowest, read_log
from fairseq_tiedemb.checkpoints.settings import as_dict
from fairseq_tiedemb.results import logs
from fairseq_tiedemb.results.grid import NOTHING, Cell, Grid, Section, number, without_empty_columns
from fairseq_tiedemb.results.usage import Usage, read_usage

# The checkpoint that tells of a training without a log: the first that is there.
CHECKPOINTS = ("checkpoint_best.pt", "checkpoint_last.pt")
# Options that differ between any two trainings, or between the log and the checkpoints of one (training/recipes.py).
PLACES = {"save_dir", "log_file", "save_interval_updates"}
DATA_DIFFER = "These trainings have different data (task.data): between those, perplexities do not compare."
EVERYWHERE = "no_progress_bar"  # an option of `common`, which tells a section with all arguments of a command
SETTINGS = "{'_name': None, 'common': {"  # where fairseq-train's log tells its settings


@dataclass
class Training:
    """What is known of a training."""

    label: str
    curves: Run = field(default_factory=Run)
    options: dict[str, str] = field(default_factory=dict)  # by section and name
    parameters: int | None = None  # each shared one once
    epochs: int | None = None  # begun
    best_loss: float | None = None  # of its checkpoint, by fairseq's `--best-checkpoint-metric`
    # Beside it, by name: perplexities of score-NAME.log, BLEU of NAME.bleu, SVG files.
    figures: dict[str, float] = field(default_factory=dict)
    pictures: tuple[Path, ...] = ()
    usage: Usage | None = None
    missing: list[str] = field(default_factory=list)  # what could not be read and why, in a few words each

    def best(self) -> tuple[int, float] | None:
        """The epoch with the lowest finite perplexity of the first validation subset, and this; None without one."""
        return lowest(self.curves.valid_curve(None, path=self.label))


def read_training(path: Path, label: str) -> Training:
    """Reads a training: a log of fairseq-train, or a folder with train.log or with checkpoints.

    It may have just begun, its losses may be no perplexities, and its scores may still be measured: `missing` says so.
    ValueError, naming the path, if it is neither, has neither, or they cannot be read.
    """
    if not path.is_dir():
        return read_training_log(path, label)
    log = path / "train.log"
    checkpoint = next((path / name for name in CHECKPOINTS if (path / name).exists()), None)
    if log.exists():
        training = read_training_log(log, label)
    elif checkpoint is not None:
        training = read_training_checkpoint(checkpoint, label)
    else:
        raise no_training(path)
    for score in [*sorted(path.glob("score-*.log")), *sorted(path.glob("*.bleu"))]:
        try:
            if score.suffix == ".log":
                name = f"{score.stem.removeprefix('score-')} ppl"
                training.figures[name], _ = logs.read_eval_lm(score, flag="RUN")
            else:
                training.figures[f"{score.stem} BLEU"], _ = logs.read_bleu(score, flag="RUN")
        except ValueError:  # an evaluation that still runs, or broke off
            training.missing.append(f"no finite figure in {score.name}")
    training.usage = read_usage(path / "usage.jsonl") if (path / "usage.jsonl").exists() else None
    training.pictures = tuple(sorted(picture for picture in path.glob("*.svg") if picture.is_file()))
    return training


def read_training_log(path: Path, label: str) -> Training:
    """Reads a log of fairseq-train, with the errors of ``read_training``."""
    text = logs.read_text(path, flag="RUN")
    training = Training(label, options=options_of_log(text), parameters=logs.read_parameters(text))
    try:
        training.curves = read_log(path)
    except ValueError:
        if SETTINGS not in text:
            raise no_training(path) from None
        training.missing.append(f"no perplexities in {path.name}")
    curves = [training.curves.train, *training.curves.valid.values()]
    training.epochs = max((epoch for curve in curves for epoch in curve), default=None)
    return training


def no_training(path: Path) -> ValueError:
    """The error of a path that is no training."""
    needs = f"a folder with train.log, {' or '.join(CHECKPOINTS)}, or a log of fairseq-train"
    use = "mkdir -p FOLDER, then fairseq-train with --save-dir FOLDER --log-file FOLDER/train.log"
    return ValueError(f"RUN: needs {needs}; got {path}, which is neither. Use {use}.")


def read_training_checkpoint(path: Path, label: str) -> Training:
    """Reads a checkpoint: settings, epoch and the best value of the validation."""
    from fairseq_tiedemb.checkpoints.reading import read_checkpoint  # which imports torch

    state = read_checkpoint(path, flag="RUN")
    extra = state.get("extra_state") or {}
    best, place = extra.get("best", extra.get("val_loss")), extra.get("train_iterator")
    place = place if isinstance(place, dict) else {}
    epoch = place.get("epoch")
    if isinstance(epoch, int) and place.get("iterations_in_epoch") == 0:  # the next one, after the end of an epoch
        epoch -= 1
    return Training(
        label,
        options=flat(without_copies(state.get("cfg") or state.get("args") or {})),
        epochs=epoch if isinstance(epoch, int) else None,
        best_loss=best if isinstance(best, float) else None,
    )


def options_of_log(text: str) -> dict[str, str]:
    """The settings that fairseq-train logs at its start, the last one in the log; empty if it has none."""
    place = text.rfind(SETTINGS)
    if place < 0:
        return {}
    try:
        return flat(without_copies(plain(ast.parse(text[place:].partition("\n")[0], mode="eval").body)))
    except (SyntaxError, ValueError, RecursionError, MemoryError):  # a line that breaks off, or goes on
        return {}


def plain(node: ast.expr) -> Any:
    """The value of an expression of constants, dictionaries and `Namespace(...)`, any other as text; nothing is run."""
    if isinstance(node, ast.Call) and ast.unparse(node.func) == "Namespace":
        return {keyword.arg or "": plain(keyword.value) for keyword in node.keywords}
    if isinstance(node, ast.Dict):
        keys = [key.value for key in node.keys if isinstance(key, ast.Constant)]
        return {str(key): plain(value) for key, value in zip(keys, node.values, strict=True)}
    return node.value if isinstance(node, ast.Constant) else ast.unparse(node)


def flat(settings: Any, section: str = "") -> dict[str, str]:
    """Nested settings as `section.name`, as text; what fairseq writes for itself, and what is not set, is left out."""
    values: dict[str, str] = {}
    for name, value in as_dict(settings).items():
        if isinstance(value, dict | Namespace):
            values |= flat(value, f"{section}{name}.")
        elif value is not None and value is not False and (name != "_name" or section == "model."):
            values[f"{section}{name}"] = str(value)
    return values


def without_copies(settings: Any) -> dict[str, Any]:
    """Settings without repetitions: for a part without a dataclass, such as SGD, fairseq saves all of the command's."""
    settings = as_dict(settings)
    sections = {name: as_dict(value) for name, value in settings.items() if isinstance(value, dict | Namespace)}
    for name, section in sections.items():
        if name != "common" and EVERYWHERE in section:
            elsewhere = {option for other in sections if other != name for option in sections[other]}
            section = {option: value for option, value in section.items() if option not in elsewhere}
            settings = {**settings, name: section}
    return settings


def sections(trainings: Sequence[Training]) -> list[Section]:
    """All trainings beside each other: best figures, curves, and on demand their options."""
    charts = {}
    for subset in dict.fromkeys(name for training in trainings for name in training.curves.valid) or [""]:
        curves = [(each, finite(each.curves.train), finite(each.curves.valid.get(subset, {}))) for each in trainings]
        series = [Series(each.label, train, valid) for each, train, valid in curves if train or valid]
        if series:
            what = f"`{subset}` solid, training (running) dashed" if subset else "training (running)"
            charts[f"Perplexity by epoch: {what}."] = series
    details = {"Options that differ": differing(trainings)} if len(trainings) > 1 else {}
    details |= {f"Options of {each.label}": options(each) for each in trainings if each.options}
    pictures = {f"{each.label}: {path.stem}": path for each in trainings for path in each.pictures}
    data = {each.options["task.data"] for each in trainings if "task.data" in each.options}
    notes = (DATA_DIFFER,) if len(data) > 1 else ()
    return [Section("runs", "Runs", notes, best_figures(trainings), None, charts, pictures, details)]


def best_figures(trainings: Sequence[Training]) -> Grid:
    """A line a training: size, best perplexity, scores, CPU time and memory."""
    names = list(dict.fromkeys(name for training in trainings for name in training.figures))
    headings = ["run", "parameters", "epochs", "best valid ppl ↓", "at epoch", "best of checkpoint", *names]
    rows = []
    for training in trainings:
        usage, best = training.usage, training.best() or (None, None)
        rows.append(
            (
                Cell(training.label),
                cell(training.parameters, 0),
                cell(training.epochs, 0),
                cell(best[1], 2),
                cell(best[0], 0),
                cell(training.best_loss, 3),
                *(cell(training.figures.get(name), 2) for name in names),
                cell(usage.cpu_seconds / 60 if usage else None, 1),
                cell(usage.peak_memory / 1e9 if usage and usage.peak_memory else None, 2),
                Cell("; ".join(training.missing) or NOTHING.text),
            )
        )
    return without_empty_columns([*headings, "CPU minutes", "memory, GB", "missing"], rows)


def differing(trainings: Sequence[Training]) -> Grid:
    """The options in which trainings differ, a line each."""
    names = sorted({name for each in trainings for name in each.options if name.rpartition(".")[2] not in PLACES})
    values = {name: [training.options.get(name) for training in trainings] for name in names}
    rows = [(code(name), *map(code, each)) for name, each in values.items() if len(set(each)) > 1]
    return Grid(("option", *(training.label for training in trainings)), tuple(rows))


def options(training: Training) -> Grid:
    """The options of a training, a line each."""
    rows = tuple((code(name), code(value)) for name, value in sorted(training.options.items()))
    return Grid(("option", "value"), rows)


def code(text: str | None) -> Cell:
    """A text as it is, whatever Markdown would make of it, or nothing."""
    return Cell(f"`{text}`") if text else NOTHING


def cell(value: float | None, digits: int) -> Cell:
    """A number, or nothing; a value that is not finite is told and not sorted."""
    if value is None:
        return NOTHING
    return Cell(number(value, digits), value) if math.isfinite(value) else Cell(str(value))
