"""Write a model for stock fairseq, CTranslate2 or Hugging Face.

--to fairseq folds sharing method, projection and factorised tables into the tables of a Transformer or convolutional
model. plain and l2-input stay tied; what else is folded becomes untied. Refused are distance and --projection-bias,
which need an output bias, and fixnorm and --logit-soft-cap, whose logits are no matrix times the features.

--to ctranslate2 converts a Transformer, ours or fairseq's, with any sharing method but fixnorm, to a folder for
ctranslate2.Translator or, for a language model, ctranslate2.Generator. Its input and output are subwords.

--to huggingface writes a folder for transformers: a post-norm translation Transformer as FSMT, a pre-norm language
model as XGLM. With --bpe-codes, FSMT's tokenizer reads raw text; other tokenizers read segmented text.
"""

import argparse
from pathlib import Path
from typing import Any

from fairseq_tiedemb.cli._options import add_user_dir, import_user_dir, refuse_options
from fairseq_tiedemb.cli._output import check_output, check_output_folder, save_aside, written_aside

QUANTIZATIONS = ("float32", "int8")
# By target: options that not every target has.
OPTIONS = {"fairseq": ["settings"], "ctranslate2": ["quantization", "data"], "huggingface": ["bpe_codes", "data"]}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    about = "checkpoint of tied_transformer, tied_lightconv, ..."
    parser.add_argument("checkpoint", type=Path, metavar="CHECKPOINT", help=about)
    parser.add_argument("output", type=Path, metavar="OUT", help="new checkpoint; with another --to a new folder")
    parser.add_argument("--to", choices=tuple(OPTIONS), default="fairseq", help="target program (default: fairseq)")
    about = "for fairseq, form of the settings of its older models: dict works with every torch; namespace is "
    about += "fairseq-train's own form, which torch 2.6 and newer refuse (default: dict)"
    parser.add_argument("--settings", choices=("dict", "namespace"), help=about)
    about = "number format of the matrices, for ctranslate2 (default: float32)"
    parser.add_argument("--quantization", choices=QUANTIZATIONS, help=about)
    about = "for ctranslate2 and huggingface, folder with the training's dictionaries. Default: from the checkpoint"
    parser.add_argument("--data", type=Path, help=about)
    about = "codes of subword-nmt or fastBPE, for huggingface's tokenizer"
    parser.add_argument("--bpe-codes", type=Path, metavar="FILE", help=about)
    add_user_dir(parser)


def run(arguments: argparse.Namespace) -> None:
    """Writes the model, and prints its kind."""
    for target, options in OPTIONS.items():
        others = [name for name in options if name not in OPTIONS[arguments.to]]
        refuse_options(arguments, others, needs=f"--to {target}")
    if arguments.to == "fairseq":
        check_output(arguments.output, flag="OUT", inputs=[arguments.checkpoint])
    else:
        check_output_folder(arguments.output, flag="OUT")
    from fairseq_tiedemb.checkpoints.reading import read_checkpoint  # imports torch, which takes a second

    import_user_dir(arguments.user_dir)
    write = {"fairseq": _to_fairseq, "ctranslate2": _to_ctranslate2, "huggingface": _to_huggingface}[arguments.to]
    kind = write(arguments, read_checkpoint(arguments.checkpoint, flag="CHECKPOINT"))
    print(f"{arguments.output}: {kind}")


def _to_fairseq(arguments: argparse.Namespace, state: dict[str, Any]) -> str:
    from fairseq_tiedemb.checkpoints.meaning import preset_of
    from fairseq_tiedemb.checkpoints.reading import section_of
    from fairseq_tiedemb.export.to_fairseq import export

    state = export(state, name=str(arguments.checkpoint), as_namespace=arguments.settings == "namespace")
    save_aside(state, arguments.output)
    return preset_of(section_of(state, "model"))


def _to_ctranslate2(arguments: argparse.Namespace, state: dict[str, Any]) -> str:
    from fairseq_tiedemb.export.to_ctranslate2 import convert, save

    spec = convert(arguments.checkpoint, state, arguments.data)
    quantization = arguments.quantization or QUANTIZATIONS[0]
    with written_aside(arguments.output) as folder:
        folder.mkdir()
        save(spec, folder, quantization=quantization)
    return f"{spec.name.removesuffix('Spec')} of CTranslate2, {quantization}"


def _to_huggingface(arguments: argparse.Namespace, state: dict[str, Any]) -> str:
    from fairseq_tiedemb.export.to_huggingface import convert, save

    exported = convert(arguments.checkpoint, state, arguments.data, arguments.bpe_codes)
    with written_aside(arguments.output) as folder:
        folder.mkdir()
        save(exported, folder)
    return exported.about
