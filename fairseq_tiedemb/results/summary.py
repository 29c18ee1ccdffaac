"""A table and its results as a section: the paper's figures beside the measured ones, mean and spread over seeds."""

import statistics
from collections.abc import Sequence

from fairseq_tiedemb.results.grid import PAPER, Cell, Chart, Grid, Section, Series, number, short, without_empty_columns
from fairseq_tiedemb.results.records import Figure, Result
from fairseq_tiedemb.results.tables import Column, Table

NOT_RUN = "not run"
NOTHING = Cell("–")


def section(table: Table, results: Sequence[Result]) -> Section:
    """The whole of what a report says of a table."""
    # One result a row that nothing is known of but its figures is all in the table already.
    told = len({result.row for result in results}) == len(results) and all(result.entered for result in results)
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
            *entered(table, results),
            *of_one_training(table, results),
        ),
        grid=grid(table, results),
        charts=charts(table, results),
        pictures=pictures,
        details={} if told else {"Each run": each_run(table, results)},
    )


def grid(table: Table, results: Sequence[Result], columns: Sequence[Column] | None = None) -> Grid:
    """A line a row: the means of its results, with their standard deviation, beside the paper's figures.

    Args:
        table: the table.
        results: its results.
        columns: those to show, without CPU time and memory; if None, both and all, but those that neither the paper nor
            any of the results has.
    """
    in_paper = {name for row in table.rows for name in row.paper}
    if columns is None:
        known = in_paper.union(*(result.figures for result in results))
        shown: Sequence[Column] = [column for column in table.columns if not results or column.name in known]
    else:
        shown = columns
    headings = ["row"]
    for column in shown:
        headings += [heading(column), *([PAPER] if column.name in in_paper else [])]
    headings += ["seeds", "CPU minutes", "memory, GB"]
    rows = []
    for row in table.rows:
        own = [result for result in results if result.row == row.name]
        cells = [Cell(row.label)]
        for column in shown:
            cells.append(measured(column, own) if own else Cell(NOT_RUN))
            if column.name in in_paper:
                paper = row.paper.get(column.name)
                cells.append(NOTHING if paper is None else Cell(number(paper, column.digits), paper))
        seeds = [result.seed for result in own if result.seed is not None]
        cells.append(Cell(str(len(seeds)), len(seeds)) if seeds else NOTHING)
        cells += [cpu_minutes(own), memory(own)] if columns is None else [NOTHING, NOTHING]
        rows.append(tuple(cells))
    return without_empty_columns(headings, rows)


def heading(column: Column) -> str:
    """A column's heading: its label, the unit where the label does not say it, and which way is better."""
    arrow = {"lower": " ↓", "higher": " ↑", None: ""}[column.better]
    unit = "" if column.unit == "ratio" or column.unit in column.label else f", {column.unit}"
    return f"{column.label}{unit}{arrow}"


def measured(column: Column, results: Sequence[Result]) -> Cell:
    """What was measured of a column: one value, with its range where it has one, or mean and standard deviation.

    The deviation is that of a sample: the sum of squares over n - 1.
    """
    figures = [result.figures[column.name] for result in results if column.name in result.figures]
    if not figures:
        return NOTHING
    if len(figures) == 1:
        return Cell(one(figures[0], column.digits), figures[0].value)
    mean = statistics.fmean(figure.value for figure in figures)
    if len({figure.value for figure in figures}) == 1:
        return Cell(number(mean, column.digits), mean)
    spread = statistics.stdev(figure.value for figure in figures)
    return Cell(f"{number(mean, column.digits)} ± {number(spread, column.digits)}", mean)


def one(figure: Figure, digits: int) -> str:
    """One figure, with its range where it has one."""
    text = number(figure.value, digits)
    if figure.low is None or figure.high is None:
        return text
    return f"{text} [{number(figure.low, digits)}-{number(figure.high, digits)}]"


def cpu_minutes(results: Sequence[Result]) -> Cell:
    """The mean of the CPU minutes of trainings."""
    minutes = [result.usage.cpu_seconds / 60 for result in results if result.usage]
    return Cell(short(statistics.fmean(minutes)), statistics.fmean(minutes)) if minutes else NOTHING


def memory(results: Sequence[Result]) -> Cell:
    """The largest peak memory of trainings, in GB."""
    peaks = [result.usage.peak_memory / 1e9 for result in results if result.usage and result.usage.peak_memory]
    return Cell(number(max(peaks), 1), max(peaks)) if peaks else NOTHING


def entered(table: Table, results: Sequence[Result]) -> list[str]:
    """Which results were entered and not recorded, and why: a paragraph a reason."""
    paragraphs = []
    for reason in dict.fromkeys(result.entered for result in results if result.entered):
        of_reason = [result for result in results if result.entered == reason]
        labels = dict.fromkeys(table.row(result.row, flag="row").label + _seed(result) for result in of_reason)
        which = "All results" if len(of_reason) == len(results) else "; ".join(labels)  # labels have commas
        paragraphs.append(f"{which}: {reason}.")
    return paragraphs


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
    headings = ["row", "seed", *figures, "CPU minutes", "memory, GB", "runs", "date", "commit", "processor", "versions"]
    headings += ["command", "note"]
    rows = []
    for result in results:
        environment = result.environment
        usage = result.usage
        cells = [Cell(table.row(result.row, flag="row").label)]
        cells.append(NOTHING if result.seed is None else Cell(str(result.seed), result.seed))
        cells += [measured(column, [result]) for column in table.columns]
        cells += [cpu_minutes([result]), memory([result])]
        cells.append(Cell(str(usage.runs), usage.runs) if usage and usage.runs else NOTHING)
        if environment is None:
            cells += [Cell("entered"), NOTHING, NOTHING, NOTHING]
        else:
            versions = ", ".join(f"{name} {version}" for name, version in environment.versions.items())
            device = ", ".join([environment.processor, *environment.accelerators])
            cells += [Cell(environment.date), Cell(commits(result)), Cell(device), Cell(versions)]
        cells.append(Cell(f"`{result.command}`") if result.command else NOTHING)
        cells.append(Cell(result.note) if result.note else NOTHING)
        rows.append(tuple(cells))
    return without_empty_columns(headings, rows)


def commits(result: Result) -> str:
    """The commit of the evaluation, and those of the training where they are others; `+` after changed sources."""
    environment = result.environment
    if environment is None or environment.commit is None:
        return NOTHING.text
    own = environment.commit + "+" * bool(environment.dirty)
    trained = [commit for commit in (result.usage.commits if result.usage else ()) if commit != own]
    text = _short_commit(own)
    return f"{text} (trained: {', '.join(map(_short_commit, trained))})" if trained else text


def charts(table: Table, results: Sequence[Result]) -> tuple[Chart, ...]:
    """The learning curves of a table's results, those of one training once; none if no result has one."""
    shared: dict[tuple[tuple[str, tuple[tuple[int, float], ...]], ...], list[str]] = {}
    for result in results:
        curves = tuple((name, tuple(points.items())) for name, points in result.curve.items())
        shared.setdefault(curves, []).append(table.row(result.row, flag="row").label)
    series = [
        Series("; ".join(dict.fromkeys(labels)), dict(points), dashed=name == "train")
        for curves, labels in shared.items()
        for name, points in curves
    ]
    if not series:
        return ()
    caption = "Perplexity by epoch: validation solid, training (running) dashed."
    return (Chart(caption, "epoch", "perplexity", tuple(series)),)


def as_text(result: Result, table: Table) -> str:
    """A result in a line."""
    figures = ", ".join(
        f"{column.name} {one(result.figures[column.name], column.digits)} {column.unit}"
        for column in table.columns
        if column.name in result.figures
    )
    return f"{result.row}{_seed(result)}: {figures}"


def _seed(result: Result) -> str:
    return "" if result.seed is None else f" (seed {result.seed})"


def _short_commit(commit: str) -> str:
    return commit[:9] + "+" * commit.endswith("+")
