"""What a training took: `usage.jsonl` beside it, which `recipes/measure.py` writes."""

from dataclasses import dataclass
from pathlib import Path

from fairseq_tiedemb.checkpoints.text import parse_json


@dataclass(frozen=True)
class Usage:
    """What a training took, over all the times that it was run.

    Attributes:
        cpu_seconds: of user and system, of all its processes.
        wall_seconds: while it ran.
        peak_memory: bytes, of its largest process.
        runs: how often it was started.
        commits: what it ran, in order, a `+` after a commit whose sources were changed.
    """

    cpu_seconds: float
    wall_seconds: float | None = None
    peak_memory: int | None = None
    runs: int | None = None
    commits: tuple[str, ...] = ()


def read_usage(path: Path) -> Usage:
    """Adds up the runs of a file: a JSON object a line, of which the last one of each `run` counts.

    Raises:
        ValueError: naming the file, and the line that is none or lacks a figure.
    """
    runs = {}
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise ValueError(f"{path}: needs a file that can be read; got {error}. Use another path.") from error
    for number, line in enumerate(lines, start=1):
        try:
            values = parse_json(line)
            figures = float(values["cpu_seconds"]), float(values["wall_seconds"]), int(values["peak_memory"])
            runs[values.get("run", number)] = (*figures, values.get("commit"))
        except (ArithmeticError, AttributeError, KeyError, TypeError, ValueError) as error:
            raise ValueError(
                f"{path}: needs cpu_seconds, wall_seconds and peak_memory on each line; got another line {number}. "
                "Use another file."
            ) from error
    if not runs:
        raise ValueError(f"{path}: needs a line for each run; got none. Use the file of recipes/measure.py.")
    cpu_seconds, wall_seconds, peak_memory, commits = zip(*runs.values(), strict=True)
    return Usage(
        cpu_seconds=round(sum(cpu_seconds), 1),
        wall_seconds=round(sum(wall_seconds), 1),
        peak_memory=max(peak_memory),
        runs=len(runs),
        commits=tuple(dict.fromkeys(filter(None, commits))),
    )
