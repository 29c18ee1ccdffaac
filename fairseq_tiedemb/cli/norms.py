"""Print and draw the norms of a trained model's embedding rows.

TABLE is a checkpoint of fairseq-train, a folder of Hugging Face's transformers, or a safetensors file. The padding row
is left out, except of the latter two. Equal tables, such as tied ones, are one. `--dictionary` compares frequent and
rare words.
"""

import argparse
from pathlib import Path

from fairseq_tiedemb.cli._options import add_user_dir, import_user_dir, refuse_options
from fairseq_tiedemb.cli._output import check_picture, written_aside


def add_arguments(parser: argparse.ArgumentParser) -> None:
    about = "checkpoint, folder of transformers, or safetensors file"
    parser.add_argument("checkpoint", type=Path, metavar="TABLE", help=about)
    parser.add_argument("--dictionary", type=Path, metavar="DICT.TXT", help="the training's dictionary, for counts")
    parser.add_argument("--isotropy", action="store_true", help="also print how evenly rows point in all directions")
    parser.add_argument("--parameters", action="store_true", help="also print the norm of every parameter")
    parser.add_argument("--output", type=Path, metavar="PICTURE", help="draw the histogram: .png, .svg, .pdf, ...")
    add_user_dir(parser)


def run(arguments: argparse.Namespace) -> None:
    """Prints the tables and draws the picture."""
    from fairseq_tiedemb.analysis import norms  # imports torch, which takes a second
    from fairseq_tiedemb.analysis.isotropy import isotropy
    from fairseq_tiedemb.checkpoints.dictionaries import fingerprints_of_training
    from fairseq_tiedemb.checkpoints.reading import read_checkpoint
    from fairseq_tiedemb.vectors.huggingface import is_tensor_file, read_tables

    import_user_dir(arguments.user_dir)
    checkpoint, dictionary, picture = arguments.checkpoint, arguments.dictionary, arguments.output
    if picture is not None:
        picture_format = check_picture(picture, inputs=filter(None, (checkpoint, dictionary)))
    is_fairseqs = not (checkpoint.is_dir() or (checkpoint.is_file() and is_tensor_file(checkpoint)))
    if is_fairseqs:
        state = read_checkpoint(checkpoint, flag="TABLE")
    else:
        refuse_options(arguments, ["dictionary", "parameters"], needs="a checkpoint of fairseq-train", got=checkpoint)
        state = {"model": dict(read_tables(checkpoint).values())}
    tables, counted = norms.table_norms(state["model"], path=checkpoint, is_fairseqs=is_fairseqs), []
    if dictionary is not None:
        counted = norms.with_counts(tables, dictionary, fingerprints_of_training(state.get("task_state")))
    print(norms.summary(tables))
    if counted:
        print(norms.by_frequency(counted))
    if arguments.isotropy:
        print(isotropy(tables))
    if arguments.parameters:
        print(norms.parameter_norms(state["model"]))
    if picture is not None:
        with written_aside(picture) as aside:
            norms.draw(tables, counted, aside, picture_format=picture_format)
