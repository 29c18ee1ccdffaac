"""Learning curves: perplexity by epoch, read from fairseq-train's logs."""

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, NamedTuple

from fairseq_tiedemb.terminal import printable

Curve = dict[int, float]  # perplexity by epoch

# What fairseq prints at the end of an epoch, whatever its loggers put before it: with --log-format simple or tqdm, and
# with json. The number of updates or the time always follows, so a value at the end of a line is a broken line.
NUMBER = r"\d+(?:\.\d+)?(?:e[+-]\d+)?|inf|nan"
TEXT = re.compile(rf"epoch (\d{{1,9}}) \| (?:valid on '([^']+)' subset \| )?(?:.* \| )?ppl ({NUMBER}) \|")
JSON = re.compile(r'\{"epoch": (\d{1,9}), ([^{}]*)')
JSON_PERPLEXITY = re.compile(rf'"([^"]+)(?<!_best)_ppl": "({NUMBER})"')  # of an epoch, not the lowest so far

DRAWN = (1e-100, 1e100)  # perplexities beyond have no room in matplotlib's arithmetic, and are left out
WIDE = 5  # perplexities further apart than this factor have a logarithmic axis


@dataclass
class Run:
    """The learning curves of one training run; `train` is a running mean over the epoch."""

    train: Curve = field(default_factory=dict)
    valid: dict[str, Curve] = field(default_factory=dict)  # by subset, in the order of the log

    def forget(self, epoch: int) -> None:
        """Drops the values of an epoch and of all later epochs."""
        for curve in (self.train, *self.valid.values()):
            for later in [e for e in curve if e >= epoch]:
                del curve[later]

    def valid_curve(self, subset: str | None, *, path: str | Path) -> Curve:
        """Returns the curve of a validation subset; None selects the first, or an empty curve without validation.

        ValueError, with the log at `path` and its subsets, if the run lacks the subset.
        """
        if subset is None:
            return next(iter(self.valid.values()), {})
        if subset not in self.valid:
            names = list(self.valid)
            got = f"{subset!r}, but {path} has {', '.join(names) or 'no validation'}"
            use = f"--subset {names[0]}" if names else "logs of runs with validation"
            raise ValueError(f"--subset: needs a validation subset that every log has; got {got}. Use {use}.")
        return self.valid[subset]


def finite(curve: Curve) -> Curve:
    """The finite values of a curve."""
    return {epoch: value for epoch, value in curve.items() if math.isfinite(value)}


def lowest(curve: Curve) -> tuple[int, float] | None:
    """The epoch with the lowest finite value, the first of several, and this; None without one."""
    return min(finite(curve).items(), key=lambda item: (item[1], item[0]), default=None)


def run_names(paths: Sequence[Path]) -> list[str]:
    """Names runs after their folder or log file, or after their whole path if two names would be equal.

    A log file's name drops its extension; train.log is named after its folder.
    """
    names = []
    for path in paths:
        folder = path if path.is_dir() else path.parent if path.name == "train.log" else None
        names.append(path.stem if folder is None else folder.resolve().name)
    return names if len(set(names)) == len(names) else list(map(str, paths))


def read_log(path: str | Path) -> Run:
    """Reads the perplexities at the ends of epochs from a log of fairseq-train.

    The log may be the command's output, a file of `--log-file` or hydra's log, in any `--log-format` but `none`, and
    may be cut off. If an epoch number goes back, training was resumed or restarted: values from that epoch on are
    replaced. ValueError, naming the file, if it cannot be read or has no perplexity.
    """
    run = Run()
    newest = 0
    try:
        # tqdm ends lines with \r, which counts here.
        with open(path, encoding="utf-8", errors="replace") as log:
            for line in log:
                for epoch, subset, perplexity in epoch_values(line):
                    if epoch < newest:
                        run.forget(epoch)
                    newest = epoch
                    curve = run.train if subset is None else run.valid.setdefault(subset, {})
                    curve[epoch] = perplexity
    except OSError as error:
        raise ValueError(f"LOG: needs a log of fairseq-train; got {path} ({error.strerror}). Use another.") from error
    if newest == 0:
        needs = "perplexities at the end of epochs, as in `epoch 001 | loss ... | ppl ... |`"
        use = "the log of a fairseq-train that ended an epoch, with --log-format simple or json"
        raise ValueError(f"LOG: needs {needs}; got {path}, which has none. Use {use}.")
    return run


def epoch_values(line: str) -> Iterator[tuple[int, str | None, float]]:
    """Yields the epoch, the validation subset (None for the training data) and the perplexity that a line reports."""
    if match := TEXT.search(line):
        values = [(match[2], match[3])]
    elif match := JSON.search(line):
        values = [(None if tag == "train" else tag, ppl) for tag, ppl in JSON_PERPLEXITY.findall(match[2])]
    else:
        return
    for subset, perplexity in values:
        yield int(match[1]), subset, float(perplexity)


class Series(NamedTuple):
    """A run to be shown: its label and two curves, which may be empty."""

    label: str
    train: Curve
    valid: Curve


def table(series: Sequence[Series]) -> str:
    """Formats curves as text: a line per epoch, two columns per run, then each run's lowest validation perplexity."""
    epochs = sorted({epoch for one in series for epoch in one.train | one.valid})
    columns = [["epoch", *map(str, epochs)]]
    for one in series:
        for kind, curve in (("train", one.train), ("valid", one.valid)):
            values = (f"{curve[epoch]:.2f}" if epoch in curve else "-" for epoch in epochs)
            columns.append([f"{one.label} {kind}", *values])
    widths = [max(map(len, column)) for column in columns]
    lines = ["  ".join(map(str.rjust, row, widths)) for row in zip(*columns, strict=True)]
    for one in series:
        if best := lowest(one.valid):
            lines.append(f"{one.label}: lowest valid {best[1]:.2f}, epoch {best[0]}")
    return "\n".join(lines)


def draw(series: Sequence[Series], path: Path | IO[Any], *, picture_format: str) -> None:
    """Draws the curves to a file, in a format of matplotlib: a colour a run, valid solid, train dashed.

    Values that are not finite are left out.
    """
    from matplotlib import colormaps  # takes a second, for which no other command should wait
    from matplotlib.figure import Figure
    from matplotlib.ticker import FormatStrFormatter, LogLocator, MaxNLocator, NullFormatter

    figure = Figure(figsize=(7, max(4.5, 1 + len(series) / 4)), layout="constrained")  # the legend needs its lines
    axes = figure.add_subplot()
    values: list[float] = []
    for number, one in enumerate(series):
        color = colormaps["tab10"](number) if len(series) <= 10 else colormaps["turbo"](number / (len(series) - 1))
        for curve, style in ((one.train, "dashed"), (one.valid, "solid")):
            points = {epoch: curve[epoch] for epoch in sorted(curve) if DRAWN[0] < curve[epoch] < DRAWN[1]}
            marker = "." if len(points) < 30 else ""
            axes.plot(list(points), list(points.values()), linestyle=style, color=color, marker=marker)
            values += points.values()
        # matplotlib gives labels that begin with _ no line in the legend.
        axes.plot([], [], color=color, label=" " * one.label.startswith("_") + printable(one.label).replace("$", r"\$"))
    axes.plot([], [], color="grey", label="valid")
    axes.plot([], [], color="grey", linestyle="dashed", label="train")
    if values and max(values) > WIDE * min(values):
        axes.set_yscale("log")
        axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axes.yaxis.set_major_formatter(FormatStrFormatter("%g"))
        axes.yaxis.set_minor_formatter(NullFormatter())
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.set(xlabel="epoch", ylabel="perplexity")
    axes.grid(alpha=0.3)
    axes.legend()
    figure.savefig(path, format=picture_format, dpi=150)
