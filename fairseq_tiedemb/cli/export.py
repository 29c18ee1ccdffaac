"""Write a trained model for stock fairseq or for CTranslate2.

--to fairseq folds sharing method, projection and factorised tables into the tables of a checkpoint: l2-input stays
tied, what has two tables then becomes untied. distance needs an output bias, which fairseq's models have not.

--to ctranslate2 makes a folder for ctranslate2.Translator or, of a language model, ctranslate2.Generator, out of a
Transformer, ours or fairseq's, whatever its sharing method. Words go in and come out as the training text was split.
"""

import argparse
from pathlib import Path

from fairseq_tiedemb.cli._output import check_output, check_output_folder, folder_aside, save_aside
from fairseq_tiedemb.cli._user_dir import add_user_dir, import_user_dir
from fairseq_tiedemb.export.targets import CHECKS, QUANTIZATIONS

# Of one target alone.
OPTIONS = {"settings": "fairseq", "quantization": "ctranslate2", "data": "ctranslate2"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds what to export and where to."""
    parser.add_argument("checkpoint", type=Path, metavar="CHECKPOINT", help="of tied_transformer, tied_lightconv, ...")
    parser.add_argument("output", type=Path, metavar="OUT", help="the new checkpoint; of ctranslate2 a new folder")
    parser.add_argument("--to", choices=tuple(CHECKS), default="fairseq", help="default: fairseq")
    parser.add_argument(
        "--settings",
        choices=("dict", "namespace"),
        help="how to save those of fairseq's older models: plain, which fairseq reads under every torch, or as "
        "fairseq-train saves them, which torch 2.6 and newer refuse (default: dict)",
    )
    parser.add_argument(
        "--quantization",
        choices=QUANTIZATIONS,
        help="of the matrices, for ctranslate2 (default: float32)",
    )
    parser.add_argument(
        "--data",
        type=Path,
        help="folder with the dictionaries of the training, for ctranslate2. Default: as the checkpoint says",
    )
    add_user_dir(parser)


def run(arguments: argparse.Namespace) -> int:
    """Writes the model, and prints what it is.

    Raises:
        ValueError: if the target has no such model, or no such option.
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
    from fairseq_tiedemb.analysis.checkpoints import read_checkpoint  # and torch, which takes a second
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
    from fairseq_tiedemb.analysis.checkpoints import read_checkpoint
    from fairseq_tiedemb.export.to_ctranslate2 import convert, save

    import_user_dir(arguments.user_dir)
    spec = convert(arguments.checkpoint, read_checkpoint(arguments.checkpoint, flag="CHECKPOINT"), arguments.data)
    quantization = arguments.quantization or QUANTIZATIONS[0]
    with folder_aside(arguments.output) as folder:
        save(spec, folder, quantization=quantization)
    print(f"{arguments.output}: {spec.name.removesuffix('Spec')} of CTranslate2, {quantization}")
    return 0
