"""Write a result as data, from the logs that measured it.

A result is RESULTS/TABLE/ROW-SEED.json: figures with units and the paper's figures, command, commit, versions,
processor, CPU seconds and memory. make_pages.py makes every table from such files. The recipes name the files of a
folder: score-COLUMN.log of fairseq-eval-lm, COLUMN.bleu of sacrebleu, train.log of fairseq-train (the curve, the column
`parameters`), usage.jsonl of measure.py, and pictures, KIND.svg. Recording again replaces a result, unless that has
more figures.
"""

import argparse
import contextlib
import json
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from bookkeeping import logs
from bookkeeping.data import (
    Column,
    Figure,
    Result,
    Row,
    Table,
    environment,
    named,
    pictures_beside,
    read_tables,
    write_result,
)
from bookkeeping.summary import as_text

from fairseq_tiedemb.analysis.curves import Run, finite, read_log
from fairseq_tiedemb.cli import main
from fairseq_tiedemb.cli._output import written_aside
from fairseq_tiedemb.results.logs import read_parameters, read_text
from fairseq_tiedemb.results.usage import read_usage

# Of each flag the unit of its columns, and what makes a figure of a column's name and what stands after the `=`.
READERS: dict[str, tuple[str | None, Callable[[str, str], Figure]]] = {
    "--eval-lm": ("perplexity", lambda name, file: logs.read_eval_lm(Path(file), flag="--eval-lm")),
    "--ngram": ("perplexity", lambda name, file: logs.read_ngram(Path(file), name, flag="--ngram")),
    "--bleu": ("BLEU", lambda name, file: logs.read_bleu(Path(file), flag="--bleu")),
    "--figure": (None, lambda name, text: logs.read_figure(text, flag="--figure")),
}

FIGURE_HELP = "any other figure; as VALUE[LOW-HIGH] the median of several measurements, with their range"


def create_parser() -> argparse.ArgumentParser:
    """Returns the parser of the row, the sources of its figures, and the output."""
    parser = argparse.ArgumentParser("record.py", description=__doc__)
    parser.set_defaults(run=run, exact=False)
    parser.add_argument("table", metavar="TABLE", help="name of the table")
    parser.add_argument("row", metavar="ROW", help="name of its row")
    parser.add_argument("--command", required=True, help="the command that measured the result")
    parser.add_argument("--seed", type=int, metavar="N", help="seed of the training, if any")
    parser.add_argument("--folder", type=Path, help="read the figures from the files named above, as far as they exist")
    for flag, what in (
        ("--eval-lm", "perplexity, from a log of fairseq-eval-lm"),
        ("--ngram", "perplexity of the text COLUMN.txt, from the output of fairseq-tiedemb ngram"),
        ("--bleu", "score, from the output of sacrebleu"),
    ):
        parser.add_argument(flag, nargs="+", action="extend", default=[], metavar="COLUMN=FILE", help=what)
    parser.add_argument("--figure", nargs="+", action="extend", default=[], metavar="COLUMN=VALUE", help=FIGURE_HELP)
    parser.add_argument("--gpu", action="store_true", help="this machine's GPUs did it: their names are recorded")
    parser.add_argument("--note", help="a note on the result, one line")
    parser.add_argument("--if-known", action="store_true", help="record nothing if the table lacks the row")
    parser.add_argument("--tables", type=Path, default=Path("recipes/tables"), help="default: %(default)s")
    parser.add_argument("--results", type=Path, default=Path("recipes/results"), help="default: %(default)s")
    return parser


def run(arguments: argparse.Namespace) -> int:
    """Reads the figures and writes the file, completely or not at all; names it on stderr."""
    tables = {each.name: each for each in read_tables(arguments.tables, flag="--tables")}
    if arguments.table not in tables:
        raise ValueError(f"TABLE: needs a table of {arguments.tables}; got {arguments.table}. Use {', '.join(tables)}.")
    table = tables[arguments.table]
    if arguments.if_known and arguments.row not in [row.name for row in table.rows]:
        print(f"not recorded: the table {table.name} has no row {arguments.row}", file=sys.stderr)
        return 0
    result, pictures = collect(arguments, table, table.row(arguments.row, flag="ROW"))
    said = f"{table.name}, {as_text(result, table)}"
    folder = arguments.results / table.name
    path = folder / f"{result.stem}.json"
    known = {column.name for column in table.columns} - result.figures.keys()
    if lost := sorted(known & _earlier(path, result)):
        print(f"not recorded: {path} has {', '.join(lost)}, too. Remove it first, or measure all.", file=sys.stderr)
        return 0
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for old in pictures_beside(path).values():
            old.unlink()
    except OSError as error:
        raise ValueError(
            f"--results: needs a folder that can be written; got {folder} ({error.strerror}). Use another."
        ) from error
    for kind, content in pictures.items():
        with written_aside(folder / f"{result.stem}.{kind}.svg") as aside:
            aside.write_bytes(content)
    with written_aside(path) as aside:
        write_result(result, aside)
    print(f"recorded: {said}: {path}", file=sys.stderr)
    return 0


def _earlier(path: Path, result: Result) -> set[str]:
    """Names of the figures that an earlier result of the same row and seed measured.

    Raises:
        ValueError: if the file has another row's result: `a` with seed 1 and `a-1` without seed share a name.
    """
    if not path.exists():
        return set()
    with named(path):
        other = json.loads(path.read_text(encoding="utf-8"))
        row, seed, figures = other["row"], other.get("seed"), set(other["figures"])
    if (row, seed) != (result.row, result.seed):
        raise ValueError(
            f"ROW, --seed: need a file of their own; got {path}, which has the row {row} with the seed {seed}. Use "
            "another name of the row in the table."
        )
    return figures


def collect(arguments: argparse.Namespace, table: Table, row: Row) -> tuple[Result, dict[str, bytes]]:
    """Returns a row's result, from the command line and the logs, and its pictures by kind.

    Raises:
        ValueError: if the command or note is not one line, a column is unknown, repeated or of another unit, a log
            lacks its line, a figure is not finite, or there is no figure.
    """
    if arguments.seed is not None and arguments.seed < 0:
        raise ValueError(f"--seed: needs 0 or more; got {arguments.seed}. Use 1, say.")
    folder: Path | None = arguments.folder
    if folder is not None and not folder.is_dir():
        raise ValueError(f"--folder: needs a folder; got {folder}. Use that of --save-dir.")
    note = arguments.note or None  # a script may have nothing to say
    for flag, text in (("--command", arguments.command), ("--note", note)):
        if text is not None and (text.splitlines() != [text] or not text.strip()):
            raise ValueError(f"{flag}: needs one line of text; got {text!r}. Use spaces for line breaks.")
    figures = Figures(table, row)
    log, usage, pictures = None, None, {}
    if folder is not None:
        figures.add_folder(folder)
        log = folder / "train.log" if (folder / "train.log").exists() else None
        usage = read_usage(folder / "usage.jsonl") if (folder / "usage.jsonl").exists() else None
        pictures = {path.stem: path.read_bytes() for path in folder.glob("*.svg") if path.is_file()}
    for flag, (unit, read) in READERS.items():
        for value in getattr(arguments, flag[2:].replace("-", "_")):
            figures.add_flag(flag, unit, value, read)
    if not figures.found:
        names = ", ".join(column.name for column in table.columns)
        raise ValueError(f"--folder: needs a figure of one of the columns {names}; got none. Use --figure, say.")
    text = read_text(log, flag="--folder") if log else ""
    curves = Run()
    with contextlib.suppress(ValueError):  # of a log without perplexities, or cut off
        curves = read_log(log) if log else curves
    return Result(
        table=table.name,
        row=row.name,
        seed=arguments.seed,
        figures={column.name: figures.found[column.name] for column in table.columns if column.name in figures.found},
        command=arguments.command,
        environment=environment(logs.read_accelerators() if arguments.gpu else ()),
        usage=usage,
        curve={name: kept for name, each in {"train": curves.train, **curves.valid}.items() if (kept := finite(each))},
        note=note,
    ), pictures


class Figures:
    """The figures of a row, by column, with the paper's beside them."""

    def __init__(self, table: Table, row: Row) -> None:
        self.table = table
        self.row = row
        self.found: dict[str, Figure] = {}
        self.flags: dict[str, str] = {}  # by column

    def add(self, column: Column, measured: Figure) -> None:
        """Adds one, in place of an earlier one of the column."""
        self.found[column.name] = replace(measured, unit=column.unit, paper=self.row.paper.get(column.name))

    def add_flag(self, flag: str, unit: str | None, text: str, read: Callable[[str, str], Figure]) -> None:
        """Adds one that the command line names, COLUMN=VALUE; it takes the place of one that a folder has.

        Raises:
            ValueError: naming the flag, if the text has another form, the column is unknown or repeated, or its unit is
                not `unit`.
        """
        name, equals, value = text.partition("=")
        if not equals or not value:
            form = "VALUE" if unit is None else "FILE"
            raise ValueError(f"{flag}: needs COLUMN={form}; got {text}. Use {self.table.columns[0].name}={form}.")
        column = self.table.column(name, flag=flag)
        if unit is not None and column.unit != unit:
            raise ValueError(f"{flag}: needs a column of {unit}; got {name}, of {column.unit}. Use --figure.")
        if name in self.flags:
            raise ValueError(
                f"{flag}: needs each column once; got {name}, as {self.flags[name]} has. Use one of the two."
            )
        self.flags[name] = flag
        self.add(column, read(name, value))

    def add_folder(self, folder: Path) -> None:
        """Adds the figures of all columns whose files are in a folder.

        Raises:
            ValueError: as the readers of the logs.
        """
        for column in self.table.columns:
            score, bleu = folder / f"score-{column.name}.log", folder / f"{column.name}.bleu"
            if column.unit == "perplexity" and score.exists():
                self.add(column, logs.read_eval_lm(score, flag="--folder"))
            elif column.unit == "BLEU" and bleu.exists():
                self.add(column, logs.read_bleu(bleu, flag="--folder"))
            elif column.name == "parameters" and (folder / "train.log").exists():
                count = read_parameters(read_text(folder / "train.log", flag="--folder"))
                if count is not None:
                    self.add(column, Figure(count))


if __name__ == "__main__":
    sys.exit(main(parser=create_parser()))
