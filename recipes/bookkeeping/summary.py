"""A table and its results as a section: the paper's figures beside the measured ones, mean and spread over seeds."""

import re
import statistics
from collections.abc import Sequence

from fairseq_tiedemb.analysis.curves import Series
from fairseq_tiedemb.results.grid import NOTHING, PAPER, Cell, Grid, Section, number, without_empty_columns

from .data import CPU_MINUTES, Column, Figure, Result, Row, Table

CAPTION = "Perplexity by epoch: validation solid, training (running) dashed."


def section(table: Table, results: Sequence[Result]) -> Section:
    """The whole of what a report says of a table."""
    missing = not_run(table, results)
    pictures = {
        f"{table.row(result.row, flag='row').label}{_seed(result)}: {kind}": path
        for result in results
        for kind, path in result.pictures.items()
    }
    return Section(
        name=table.name,
        title=table.title,
        paragraphs=(
            f"Source: {table.source}.",
            *table.notes,
            *of_one_training(table, results),
        ),
        grid=grid(table, results) if results else None,
        missing=missing if missing.rows else None,
        charts=charts(table, results),
        pictures=pictures,
        details={"Each run": each_run(table, results)} if results else {},
        subject=table.subject,
    )


def rows_run(sections: Sequence[Section], results: Sequence[Result]) -> str:
    """How many rows were run."""
    run = sum(len(each.grid.rows) for each in sections if each.grid)
    missing = sum(len(each.missing.rows) for each in sections if each.missing)
    return f"{run} of {run + missing} rows were run, in {len(results)} results."


def measured_on(results: Sequence[Result]) -> str:
    """Devices and versions of results."""
    environments = [result.environment for result in results]
    devices = sorted({device for each in environments for device in (each.processor, *each.accelerators)})
    versions = []
    for name in dict.fromkeys(name for each in environments for name in each.versions):
        own = sorted({each.versions[name] for each in environments if name in each.versions}, key=_numbers)
        versions.append(f"{name} {' to '.join(dict.fromkeys((own[0], own[-1])))}")
    return f"Measured on {', '.join(devices) or 'no device'}, with {', '.join(versions) or 'no version'}."


def _numbers(version: str) -> list[int]:
    """The numbers in a version, by which 0.1.9 is before 0.1.11."""
    return [int(number) for number in re.findall(r"\d+", version)]


def grid(table: Table, results: Sequence[Result], columns: Sequence[Column] | None = None) -> Grid:
    """A line for each row that was run: means and standard deviations of its results, and the paper's figures.

    The columns are those given, or all that the paper or a result has, with CPU time and memory.
    """
    rows = [row for row in table.rows if any(result.row == row.name for result in results)]
    in_paper = {name for row in rows for name in row.paper}
    known = in_paper.union(*(result.figures for result in results))
    shown = [column for column in table.columns if column.name in known] if columns is None else columns
    headings = ["row"]
    for column in shown:
        headings += [heading(column), *([PAPER] if column.name in in_paper else [])]
    headings += ["seeds", "CPU minutes", "memory, GB"]
    lines = []
    for row in rows:
        own = [result for result in results if result.row == row.name]
        cells = [Cell(row.label)]
        for column in shown:
            cells += [measured(column, own), *([_of_paper(row, column)] if column.name in in_paper else [])]
        seeds = len(seeds_of(own))
        cells.append(Cell(str(seeds), seeds) if seeds else NOTHING)
        cells += [measured(CPU_MINUTES, own), memory(own)] if columns is None else [NOTHING, NOTHING]
        lines.append(tuple(cells))
    return without_empty_columns(headings, lines)


def not_run(table: Table, results: Sequence[Result]) -> Grid:
    """A line for each row that was not run: the paper's figures, and last hardware and time, and the command."""
    done = {result.row for result in results}
    columns = [column for column in table.columns if any(column.name in row.paper for row in table.rows)]
    lines = []
    for row in table.rows:
        if row.name not in done:
            needs, command = row.needs or table.needs, f"`{row.command}`" if row.command else None
            figures = [_of_paper(row, column) for column in columns]
            lines.append((Cell(row.label), *figures, Cell(needs or NOTHING.text), Cell(command or NOTHING.text)))
    headings = ["not run", *(f"{heading(column)}, {PAPER}" for column in columns), "hardware and time", "command"]
    return Grid(tuple(headings), tuple(lines))


def seeds_of(results: Sequence[Result]) -> set[int]:
    """The seeds of results; empty for what has none."""
    return {result.seed for result in results if result.seed is not None}


def heading(column: Column) -> str:
    """A column's heading: its label, the unit where the label does not say it, and which way is better."""
    arrow = {"lower": " ↓", "higher": " ↑", None: ""}[column.better]
    unit = "" if column.unit == "ratio" or column.unit in column.label else f", {column.unit}"
    return f"{column.label}{unit}{arrow}"


def measured(column: Column, results: Sequence[Result]) -> Cell:
    """What was measured of a column: one value, with its range where it has one, or mean and standard deviation.

    The deviation is that of a sample: the sum of squares over n - 1.
    """
    found = figures_of(column, results)
    if not found:
        return NOTHING
    if len(found) == 1:
        return Cell(one(found[0], column.digits), found[0].value)
    values = [figure.value for figure in found]
    mean = statistics.fmean(values)
    text = f" ± {number(statistics.stdev(values), column.digits)}" if len({*values}) > 1 else ""
    return Cell(number(mean, column.digits) + text, mean)


def figures_of(column: Column, results: Sequence[Result]) -> list[Figure]:
    """What results have of a column; of CPU time, those of `on_cpus`."""
    own = on_cpus(results) if column.name == CPU_MINUTES.name else results
    return [figure for result in own if (figure := result.figure(column.name))]


def on_cpus(results: Sequence[Result]) -> Sequence[Result]:
    """The results of trainings on CPUs, if any, else all: what a GPU leaves to the processor compares with none."""
    return [result for result in results if not result.environment.accelerators] or results


def one(figure: Figure, digits: int) -> str:
    """One figure, with its range where it has one."""
    text = number(figure.value, digits)
    if figure.low is None or figure.high is None:
        return text
    return f"{text} [{number(figure.low, digits)}-{number(figure.high, digits)}]"


def memory(results: Sequence[Result]) -> Cell:
    """The largest peak memory of trainings, in GB: of those on CPUs, if any, else the processor's beside a GPU."""
    peaks = [result.usage.peak_memory / 1e9 for result in on_cpus(results) if result.usage and result.usage.peak_memory]
    return Cell(number(max(peaks), 1), max(peaks)) if peaks else NOTHING


def of_one_training(table: Table, results: Sequence[Result]) -> list[str]:
    """Which rows have their CPU time and memory of the same training, which took them once: a paragraph, if any.

    They have all of its usage, seed and wall clock too, in common.
    """
    rows: dict[object, list[str]] = {}
    for result in results:
        if result.usage and result.usage.wall_seconds is not None:
            rows.setdefault((result.usage, result.seed), []).append(table.row(result.row, flag="row").label)
    groups = dict.fromkeys("; ".join(labels) for labels in rows.values() if len(labels) > 1)
    if not groups:
        return []
    which = ", ".join(f"({labels})" for labels in groups)
    return [f"Rows of one training, which took its CPU minutes and memory once: {which}."]


def each_run(table: Table, results: Sequence[Result]) -> Grid:
    """A line a result: its figures, and where they are from."""
    figures = [column.label for column in table.columns]
    headings = ["row", "seed", *figures, "CPU minutes", "memory, GB", "runs", "date", "commit", "processor", "version"]
    headings += ["command", "note"]
    rows = []
    for result in results:
        environment = result.environment
        usage = result.usage
        cells = [Cell(table.row(result.row, flag="row").label)]
        cells.append(NOTHING if result.seed is None else Cell(str(result.seed), result.seed))
        cells += [measured(column, [result]) for column in table.columns]
        cells += [measured(CPU_MINUTES, [result]), memory([result])]
        cells.append(Cell(str(usage.runs), usage.runs) if usage and usage.runs else NOTHING)
        device = ", ".join([environment.processor, *environment.accelerators])
        cells += [Cell(environment.date), Cell(commits(result)), Cell(device)]
        cells.append(Cell(environment.versions.get("fairseq_tiedemb", NOTHING.text)))
        cells.append(Cell(f"`{result.command}`"))
        cells.append(Cell(result.note) if result.note else NOTHING)
        rows.append(tuple(cells))
    return without_empty_columns(headings, rows)


def commits(result: Result) -> str:
    """The commit of the evaluation, and those of the training where they are others; `+` after changed sources."""
    environment = result.environment
    if environment.commit is None:
        return NOTHING.text
    own = environment.commit + "+" * bool(environment.dirty)
    trained = [commit for commit in (result.usage.commits if result.usage else ()) if commit != own]
    text, *others = (commit[:9] + "+" * commit.endswith("+") for commit in (own, *trained))
    return f"{text} (trained: {', '.join(others)})" if others else text


def charts(table: Table, results: Sequence[Result]) -> dict[str, list[Series]]:
    """The learning curves of a table's results, those of one training once, by caption; none if no result has one."""
    series: dict[str, Series] = {}
    for result in results:
        if result.curve:
            label = table.row(result.row, flag="row").label.replace("`", "")
            other = series.get(repr(result.curve))
            if other:  # another row of the same training
                label = other.label if label in other.label.split("; ") else f"{other.label}; {label}"
            valid = next((points for name, points in result.curve.items() if name != "train"), {})
            series[repr(result.curve)] = Series(label, result.curve.get("train", {}), valid)
    return {CAPTION: list(series.values())} if series else {}


def as_text(result: Result, table: Table) -> str:
    """A result in a line."""
    figures = ", ".join(
        f"{column.name} {one(result.figures[column.name], column.digits)} {column.unit}"
        for column in table.columns
        if column.name in result.figures
    )
    return f"{result.row}{_seed(result)}: {figures}"


def _of_paper(row: Row, column: Column) -> Cell:
    value = row.paper.get(column.name)
    return NOTHING if value is None else Cell(number(value, column.digits), value)


def _seed(result: Result) -> str:
    return "" if result.seed is None else f" (seed {result.seed})"
