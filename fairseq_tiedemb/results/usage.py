"""What a training took: `usage.jsonl` beside it, which `recipes/measure.py` writes."""

from dataclasses import dataclass
from pathlib import Path

from fairseq_tiedemb.checkpoints.text import parse_json, read_lines


@dataclass(frozen=True)
class Usage:
    """What a training took, over all the times that it was run."""

    cpu_seconds: float  # of user and system, of all its processes
    wall_seconds: float | None = None
    peak_memory: int | None = None  # bytes, of its largest process
    runs: int | None = None
    commits: tuple[str, ...] = ()  # in order, a `+` after one whose sources were changed


def read_usage(path: Path) -> Usage:
    """Adds up the runs of a file: a JSON object a line, of which the last one of each `run` counts."""
    runs = {}
    for number, line in read_lines(path, flag=str(path)):
        try:
            values = parse_json(line)
            figures = float(values["cpu_seconds"]), float(values["wall_seconds"]), int(values["peak_memory"])
            runs[values.get("run", number)] = (*figures, values.get("commit") and str(values["commit"]))
        except (ArithmeticError, AttributeError, KeyError, TypeError, ValueError) as error:
            needs = "cpu_seconds, wall_seconds and peak_memory on each line"
            raise ValueError(f"{path}: needs {needs}; got another line {number}. Use another file.") from error
    if not runs:
        raise ValueError(f"{path}: needs a line for each run; got none. Use the file of recipes/measure.py.")
    cpu_seconds, wall_seconds, peak_memory, commits = zip(*runs.values(), strict=True)
    cpu, wall = (round(sum(seconds), 1) for seconds in (cpu_seconds, wall_seconds))
    return Usage(cpu, wall, max(peak_memory), len(runs), tuple(dict.fromkeys(filter(None, commits))))
