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

from fairseq_tiedemb.cli._output import check_output, check_output_folder, folder_aside, save_aside
from fairseq_tiedemb.cli._user_dir import add_user_dir, import_user_dir
from fairseq_tiedemb.export.targets import CHECKS, QUANTIZATIONS

# Options that one target supports.
OPTIONS = {"settings": "fairseq", "quantization": "ctranslate2", "data": "ctranslate2"}


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


def run(arguments: argparse.Namespace) -> int:
    """Writes the model, and prints its kind.

    Raises:
        ValueError: if the target does not support the model or an option.
    """
    for option, target in OPTIONS.items():
        value = getattr(arguments, option)
        if value is not None and target != arguments.to:
            raise ValueError(f"--{option}: needs --to {target}; got {value} with --to {arguments.to}. Leave it out.")
    if arguments.output.resolve() == arguments.checkpoint.resolve():
        raise ValueError(f"OUT: needs another name than CHECKPOINT; got {arguments.output} for both. Use a new name.")
    return (_to_fairseq if arguments.to == "fairseq" else _to_ctranslate2)(arguments)


def _to_fairseq(arguments: argparse.Namespace) -> int:
    check_output(arguments.output, flag="OUT")
    from fairseq_tiedemb.checkpoints.reading import read_checkpoint  # imports torch, which takes a second
    from fairseq_tiedemb.export.to_fairseq import export

    import_user_dir(arguments.user_dir)
    state = read_checkpoint(arguments.checkpoint, flag="CHECKPOINT")
    state = export(state, name=str(arguments.checkpoint), as_namespace=arguments.settings == "namespace")
    save_aside(state, arguments.output)
    model = state["cfg"]["model"]
    options = model if isinstance(model, dict) else vars(model)
    print(f"{arguments.output}: {options.get('_name') or options['arch']}")
    return 0


def _to_ctranslate2(arguments: argparse.Namespace) -> int:
    check_output_folder(arguments.output, flag="OUT")
    from fairseq_tiedemb.checkpoints.reading import read_checkpoint
    from fairseq_tiedemb.export.to_ctranslate2 import convert, save

    import_user_dir(arguments.user_dir)
    spec = convert(arguments.checkpoint, read_checkpoint(arguments.checkpoint, flag="CHECKPOINT"), arguments.data)
    quantization = arguments.quantization or QUANTIZATIONS[0]
    with folder_aside(arguments.output) as folder:
        save(spec, folder, quantization=quantization)
    print(f"{arguments.output}: {spec.name.removesuffix('Spec')} of CTranslate2, {quantization}")
    return 0
