"""Write a trained model for stock fairseq or for CTranslate2.

--to fairseq folds sharing method, projection and factorised tables into the tables of a checkpoint. plain and l2-input
stay tied; square-output, cosine, projections and factorised tables become untied. distance is refused: it needs an
output bias, which fairseq's models lack.

--to ctranslate2 converts a Transformer, ours or fairseq's, with any sharing method, to a folder for
ctranslate2.Translator or, for a language model, ctranslate2.Generator. Input and output are subwords of the training's
segmentation.
"""

import argparse
from pathlib import Path
from typing import Any

from fairseq_tiedemb.cli._options import refuse_options
from fairseq_tiedemb.cli._output import check_output, check_output_folder, folder_aside, save_aside
from fairseq_tiedemb.cli._user_dir import add_user_dir, import_user_dir
from fairseq_tiedemb.export.targets import CHECKS, QUANTIZATIONS

# Options of one target alone.
OPTIONS = {"fairseq": ["settings"], "ctranslate2": ["quantization", "data"]}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the checkpoint, the output and the target."""
    parser.add_argument(
        "checkpoint", type=Path, metavar="CHECKPOINT", help="checkpoint of tied_transformer, tied_lightconv, ..."
    )
    parser.add_argument("output", type=Path, metavar="OUT", help="the new checkpoint; for ctranslate2 a new folder")
    parser.add_argument("--to", choices=tuple(CHECKS), default="fairseq", help="default: fairseq")
    parser.add_argument(
        "--settings",
        choices=("dict", "namespace"),
        help="form of the settings of fairseq's older models: dict works with every torch; namespace is "
        "fairseq-train's own form, which torch 2.6 and newer refuse (default: dict)",
    )
    parser.add_argument(
        "--quantization",
        choices=QUANTIZATIONS,
        help="number format of the matrices, for ctranslate2 (default: float32)",
    )
    parser.add_argument(
        "--data",
        type=Path,
        help="folder with the dictionaries of the training, for ctranslate2. Default: from the checkpoint",
    )
    add_user_dir(parser)


def run(arguments: argparse.Namespace) -> None:
    """Writes the model, and prints its kind.

    Raises:
        ValueError: if the target does not support the model or an option.
    """
    for target, options in OPTIONS.items():
        if target != arguments.to:
            refuse_options(arguments, options, needs=f"--to {target}")
    if arguments.output.resolve() == arguments.checkpoint.resolve():
        raise ValueError(f"OUT: needs another name than CHECKPOINT; got {arguments.output} for both. Use a new name.")
    check = check_output if arguments.to == "fairseq" else check_output_folder
    check(arguments.output, flag="OUT")
    from fairseq_tiedemb.checkpoints.reading import read_checkpoint  # imports torch, which takes a second

    import_user_dir(arguments.user_dir)
    write = _to_fairseq if arguments.to == "fairseq" else _to_ctranslate2
    kind = write(arguments, read_checkpoint(arguments.checkpoint, flag="CHECKPOINT"))
    print(f"{arguments.output}: {kind}")


def _to_fairseq(arguments: argparse.Namespace, state: dict[str, Any]) -> str:
    from fairseq_tiedemb.checkpoints.reading import section_of
    from fairseq_tiedemb.export.to_fairseq import export

    state = export(state, name=str(arguments.checkpoint), as_namespace=arguments.settings == "namespace")
    save_aside(state, arguments.output)
    options = section_of(state, "model")
    return str(options.get("_name") or options["arch"])


def _to_ctranslate2(arguments: argparse.Namespace, state: dict[str, Any]) -> str:
    from fairseq_tiedemb.export.to_ctranslate2 import convert, save

    spec = convert(arguments.checkpoint, state, arguments.data)
    quantization = arguments.quantization or QUANTIZATIONS[0]
    with folder_aside(arguments.output) as folder:
        save(spec, folder, quantization=quantization)
    return f"{spec.name.removesuffix('Spec')} of CTranslate2, {quantization}"
