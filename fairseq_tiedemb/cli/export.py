"""Write a trained model for stock fairseq, or for CTranslate2, which serves it fast; both without this plugin.

--to fairseq folds sharing method, projection and factorised tables into the tables of a checkpoint: l2-input stays
tied, what has two tables then becomes untied. distance needs an output bias, which fairseq's models have not.

--to ctranslate2 makes a folder for ctranslate2.Translator or, of a language model, ctranslate2.Generator, out of a
Transformer, ours or fairseq's, whatever its sharing method. Words go in and come out as the training text was split.
"""

import argparse
from pathlib import Path

from fairseq_tiedemb.analysis.checkpoints import read_checkpoint
from fairseq_tiedemb.cli._output import check_output, check_output_folder, folder_aside, save_aside

# Of one target alone.
OPTIONS = {"settings": "fairseq", "quantization": "ctranslate2", "data": "ctranslate2"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds what to export and where to."""
    parser.add_argument("checkpoint", type=Path, metavar="CHECKPOINT", help="of tied_transformer, tied_lightconv, ...")
    parser.add_argument("output", type=Path, metavar="OUT", help="the new checkpoint; of ctranslate2 a new folder")
    parser.add_argument("--to", choices=("fairseq", "ctranslate2"), default="fairseq", help="default: fairseq")
    parser.add_argument(
        "--settings",
        choices=("dict", "namespace"),
        help="how to save those of fairseq's older models: plain, which fairseq reads under every torch, or as "
        "fairseq-train saves them, which torch 2.6 and newer refuse (default: dict)",
    )
    parser.add_argument(
        "--quantization",
        choices=("float32", "int8"),
        help="of the matrices, for ctranslate2 (default: float32)",
    )
    parser.add_argument(
        "--data",
        type=Path,
        help="folder with the dictionaries of the training, for ctranslate2. Default: as the checkpoint says",
    )


def run(arguments: argparse.Namespace) -> int:
    """Writes the model, and prints what it is.

    Raises:
        ValueError: if the target has no such model, or no such option.
    """
    for option, target in OPTIONS.items():
        value = getattr(arguments, option)
        if value is not None and target != arguments.to:
            raise ValueError(f"--{option}: needs --to {target}; got {value} with --to {arguments.to}. Leave it out.")
    return (_to_fairseq if arguments.to == "fairseq" else _to_ctranslate2)(arguments)


def _to_fairseq(arguments: argparse.Namespace) -> int:
    from fairseq_tiedemb.export.to_fairseq import export

    check_output(arguments.output, flag="OUT")
    state = read_checkpoint(arguments.checkpoint, flag="CHECKPOINT")
    state = export(state, name=str(arguments.checkpoint), as_namespace=arguments.settings == "namespace")
    save_aside(state, arguments.output)
    model = state["cfg"]["model"]
    options = model if isinstance(model, dict) else vars(model)
    print(f"{arguments.output}: {options.get('_name') or options['arch']}")
    return 0


def _to_ctranslate2(arguments: argparse.Namespace) -> int:
    from fairseq_tiedemb.export.settings import settings_of
    from fairseq_tiedemb.export.to_ctranslate2 import convert, save

    check_output_folder(arguments.output, flag="OUT")
    settings = settings_of(read_checkpoint(arguments.checkpoint, flag="CHECKPOINT"), str(arguments.checkpoint))
    spec = convert(arguments.checkpoint, settings, arguments.data)
    quantization = arguments.quantization or "float32"
    with folder_aside(arguments.output) as folder:
        save(spec, folder, quantization=quantization)
    print(f"{arguments.output}: {spec.name.removesuffix('Spec')} of CTranslate2, {quantization}")
    return 0
