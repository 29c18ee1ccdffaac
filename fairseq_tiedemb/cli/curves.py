"""Draw and print learning curves from logs of fairseq-train.

A curve is perplexity by epoch, on the training data (running mean) and on a validation subset. A log is the command's
output, the file of --log-file, or hydra's log, with --log-format simple, tqdm or json. If a run was resumed or
restarted in the same log, the last values count.
"""

import argparse
import os
from pathlib import Path

from fairseq_tiedemb.analysis.curves import Series, draw, read_log, run_names, table
from fairseq_tiedemb.cli._output import check_picture, written_aside


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("logs", nargs="+", metavar="LOG", help="logs, one per run")
    parser.add_argument("--output", type=Path, metavar="PICTURE", help="also draw the curves; .png, .svg, .pdf, ...")
    parser.add_argument("--subset", metavar="NAME", help="validation subset (default: the first of each log)")
    about = "labels of the runs (default: names of the logs or their folders)"
    parser.add_argument("--label", nargs="+", action="extend", metavar="NAME", help=about)


def run(arguments: argparse.Namespace) -> None:
    """Prints the table and draws the picture."""
    logs, picture = arguments.logs, arguments.output
    labels = arguments.label or run_names(list(map(Path, logs)))
    if len(labels) != len(logs):
        raise ValueError(f"--label: needs one for each log; got {len(labels)} for {len(logs)}. Use {len(logs)}.")
    for number, log in enumerate(logs):
        if os.path.realpath(log) in map(os.path.realpath, logs[:number]):  # two curves that cannot be told apart
            raise ValueError(f"LOG: needs each log once; got {log} twice. Leave one out.")
    if picture is not None:
        picture_format = check_picture(picture, inputs=map(Path, logs))
    series = []
    for label, path in zip(labels, logs, strict=True):
        log = read_log(path)
        series.append(Series(label, log.train, log.valid_curve(arguments.subset, path=path)))
    print(table(series))
    if picture is not None:
        with written_aside(picture) as aside:
            draw(series, aside, picture_format=picture_format)
