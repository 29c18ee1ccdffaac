"""A checkpoint of ours as one of stock fairseq's, where method, projection and factors fold into its tables."""

from argparse import Namespace
from collections import OrderedDict
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor, nn

from fairseq_tiedemb.embedding import SharedEmbedding
from fairseq_tiedemb.export.folding import fold_input, fold_output
from fairseq_tiedemb.export.settings import as_dict, settings_of
from fairseq_tiedemb.modules.factorized import FactorizedInput, narrowing
from fairseq_tiedemb.outputs import OutputLayer
from fairseq_tiedemb.sharing import SharingMethod, sharing_method
from fairseq_tiedemb.table_names import INPUTS, OUTPUT, PADDING_ROW

# Options that make tables one in fairseq, and those that it does not know.
SHARING_FLAGS = ("share_all_embeddings", "share_decoder_input_output_embed", "merge_src_tgt_embed")
OURS = ("sharing_method", "embedding_rank", "projection", "projection_bias")
P = "decoder.projection."


def export(state: dict[str, Any], *, name: str, as_namespace: bool = False) -> dict[str, Any]:
    """The checkpoint of the stock model that computes the same.

    Without an output bias, which fairseq's models have not, all that a sharing method, a projection P and a factorised
    table do is multiply: the input's vectors are rows of one matrix, and the scores are products with another
    (``folding``). Where both are one the stock model stays tied; else it has a table more, and is untied.

    torch >= 2.6 reads tensors and plain values only, unless it is told otherwise, and fairseq does not tell it. Of what
    fairseq-train saves that leaves out the settings of a model without a dataclass, and numpy's numbers.

    Args:
        state: a checkpoint as torch saved it.
        name: of its file, for errors.
        as_namespace: leave the settings of such a model an ``argparse.Namespace``, as fairseq-train saves them.

    Returns:
        A checkpoint without the optimiser's state, with the moving average (``--store-ema``) of the stock model where
        there is one; ``state`` is not changed.

    Raises:
        ValueError: if fairseq has no such model, or its method cannot be folded.
    """
    config = settings_of(state, name)
    options = as_dict(config["model"])
    stock = _stock_architecture(options, name)
    method = sharing_method(str(options.get("sharing_method") or "plain"))
    _check(options, method, as_dict(config.get("task") or {}))
    stock_options = {key: value for key, value in options.items() if key not in OURS}
    stock_options |= {key: stock for key in ("arch", "_name") if key in options}
    if not _stays_tied(options, method):
        stock_options |= {key: False for key in SHARING_FLAGS if key in stock_options}
    as_saved = as_namespace and isinstance(config["model"], Namespace)
    exported = {
        **config,
        "model": Namespace(**stock_options) if as_saved else _plain(stock_options),
        "common": {**config["common"], "user_dir": None},
        "criterion": _stock_criterion(config["criterion"]),
    }
    kept = {key: value for key, value in state.items() if key != "last_optimizer_state"}
    if "extra_state" in kept:
        # fairseq makes the EMA's float32 copy from the other where it is missing.
        extra = {key: value for key, value in kept["extra_state"].items() if key != "ema_fp32_params"}
        kept["extra_state"] = extra | ({"ema": _fold(extra["ema"], options, method)} if "ema" in extra else {})
    return _with_plain_numbers({**kept, "cfg": exported, "model": _fold(state["model"], options, method)})


def _plain(options: dict[str, Any]) -> dict[str, Any]:
    """Options that work as a dictionary, of which fairseq makes OmegaConf's: its lists cannot be multiplied.

    fairseq does that with a single width of convolution (models/lightconv.py:1051, lightconv_lm.py:287).
    """
    widths = {}
    for side in ("encoder", "decoder"):
        name = f"{side}_kernel_size_list"
        if len(options.get(name) or ()) == 1:
            widths[name] = list(options[name]) * options[f"{side}_layers"]
            if len(widths[name]) == 1:
                raise ValueError(
                    f"--settings: needs namespace for a model of convolutions with one {side} layer; got dict, from "
                    "which fairseq cannot build it. Use --settings namespace."
                )
    return {**options, **widths}


def _with_plain_numbers(value: Any) -> Any:
    """The same with Python's numbers in the place of numpy's, and lists in that of its arrays; the rest as it is."""
    if isinstance(value, np.generic | np.ndarray):
        return value.tolist()
    if type(value) is dict:
        return {key: _with_plain_numbers(item) for key, item in value.items()}
    if isinstance(value, OrderedDict):
        return OrderedDict((key, _with_plain_numbers(item)) for key, item in value.items())
    if type(value) in (list, tuple):
        return type(value)(map(_with_plain_numbers, value))
    return value


def _stock_architecture(options: dict[str, Any], name: str) -> str:
    from fairseq.models import ARCH_MODEL_REGISTRY  # seconds, which those who only read a checkpoint do not wait for

    arch = str(options.get("_name") or options.get("arch"))
    stock = arch.removeprefix("tied_")
    # fairseq's lstm_lm has no output bias where it is tied, and two biases a gate: another model.
    if stock in (arch, "lstm_lm") or stock not in ARCH_MODEL_REGISTRY:
        raise ValueError(
            f"CHECKPOINT: needs a model that fairseq has too, such as tied_transformer; got {arch} in {name}. "
            "Use it with --user-dir fairseq_tiedemb."
        )
    return stock


def _needs_bias(method: SharingMethod) -> ValueError:
    return ValueError(
        f"CHECKPOINT: needs a sharing method that only scales; got --sharing-method {method.name}, which adds a term "
        "to each word's score, for which fairseq's models have no output bias. Use --to ctranslate2, or --user-dir "
        "fairseq_tiedemb."
    )


def _check(options: dict[str, Any], method: SharingMethod, task: Mapping[str, Any]) -> None:
    if method.offset is not None:
        raise _needs_bias(method)
    if options.get("projection_bias"):
        raise ValueError(
            "CHECKPOINT: needs a projection without a bias; got --projection-bias, which adds a term to each word's "
            "score, for which fairseq's models have no output bias. Use --to ctranslate2, or --user-dir "
            "fairseq_tiedemb."
        )
    for option in ("adaptive_input", "adaptive_softmax_cutoff"):
        if options.get(option) and not method.is_plain:
            raise ValueError(
                f"CHECKPOINT: needs one table as wide as the model; got --{option.replace('_', '-')} "
                f"{options[option]}, with --sharing-method {method.name}. Use it with --user-dir fairseq_tiedemb."
            )
    if options.get("merge_src_tgt_embed") and not _stays_tied(options, method) and not _has_one_dictionary(task):
        raise ValueError(
            "CHECKPOINT: needs one dictionary for both languages, since folding unties the tables, and fairseq's then "
            "have the words of one language each; got --merge-src-tgt-embed, and not one dictionary in "
            f"{task.get('data')}. Use --to ctranslate2, with --data where that folder has moved, or train again with "
            "fairseq-preprocess --joined-dictionary and --share-all-embeddings."
        )


def _has_one_dictionary(task: Mapping[str, Any]) -> bool:
    """Whether the folder of the training is there, and has the same dictionary for both languages."""
    folder = Path(str(task.get("data")).split(":")[0])
    paths = [folder / f"dict.{task.get(side)}.txt" for side in ("source_lang", "target_lang")]
    return all(path.is_file() for path in paths) and paths[0].read_bytes() == paths[1].read_bytes()


def _stays_tied(options: dict[str, Any], method: SharingMethod) -> bool:
    """Whether tables that are one are one after folding."""
    own = method.parameters or method.input_parameters or method.feature_map
    narrowed = options.get("embedding_rank") or options.get("projection")
    return method.input_scale is method.scale and not own and not narrowed


def _fold(model: dict[str, Tensor], options: dict[str, Any], method: SharingMethod) -> dict[str, Tensor]:
    """The parameters of the stock model that computes the same, in the precision of ours."""
    if method.is_plain and _stays_tied(options, method):
        return model
    tables = {OUTPUT: _output_table(model, method)}
    for key in INPUTS:
        entries = _below(model, key)
        if "weight" in entries or "table.weight" in entries:  # else bands, or made from characters
            tables[key] = _input_table(entries, method)
    folded = {P.removesuffix("."), *(key.removesuffix(".weight") for key in tables)}
    rest = {key: value for key, value in model.items() if not key.startswith(tuple(f"{name}." for name in folded))}
    return {**rest, **tables}


def _below(model: dict[str, Tensor], table: str) -> dict[str, Tensor]:
    """The entries of the module whose table has this name, by their names in it."""
    prefix = table.removesuffix("weight")
    return {key.removeprefix(prefix): value for key, value in model.items() if key.startswith(prefix)}


def _input_table(entries: dict[str, Tensor], method: SharingMethod) -> Tensor:
    """The input's vectors (V, D)."""
    factor = entries.get("projection.weight")
    narrow = entries["weight" if factor is None else "table.weight"]
    table = _table(narrow, method, scores=False)
    embed: nn.Module = table if factor is None else FactorizedInput(table, len(factor))
    return fold_input(_loaded(embed, entries), len(narrow)).to(narrow.dtype)


def _output_table(model: dict[str, Tensor], method: SharingMethod) -> Tensor:
    """M (V, D), of scores without a bias."""
    entries, projection, factor = _below(model, OUTPUT), None, None
    weight = entries[next(name for name in ("weight", "layer.weight") if name in entries)]
    table = _table(weight, method, embeds=False)
    width = weight.size(1)
    of_factor = next((entries[name] for name in ("factor.weight", "projection.weight") if name in entries), None)
    if of_factor is not None:
        width = of_factor.size(1)
        factor = narrowing(width, len(of_factor))
    if f"{P}weight" in model:
        width = model[f"{P}weight"].size(1)
        projection = nn.Linear(width, len(model[f"{P}weight"]), bias=False).double()
        _loaded(projection, _below(model, f"{P}weight"))
    layer = _loaded(OutputLayer(table, projection=projection, factor=factor), entries)
    scores = fold_output(layer.scores, width, named=f"--sharing-method {method.name}")
    if scores.bias_V.any():
        raise _needs_bias(method)
    return scores.matrix_VD.to(weight.dtype)


def _table(weight: Tensor, method: SharingMethod, **parts: bool) -> SharedEmbedding:
    size, width = weight.shape
    parameter = nn.Parameter(weight.double(), requires_grad=False)
    return SharedEmbedding(size, width, PADDING_ROW, method=method.name, weight=parameter, **parts)


def _loaded(module: Any, entries: dict[str, Tensor]) -> Any:
    """The module in float64 with its entries, of which a tied table's may be more than its part needs.

    Raises:
        ValueError: if one is missing.
    """
    missing = module.double().eval().load_state_dict(entries, strict=False).missing_keys
    if missing:
        raise ValueError(
            f"CHECKPOINT: needs all parameters of its sharing method; got none for {', '.join(missing)}. Use the "
            "method that it was trained with, as its package registers it."
        )
    return module


def _stock_criterion(options: Any) -> Any:
    """fairseq's criterion for ours, so that fairseq-validate can build it."""
    options = as_dict(options)
    if options.get("_name") != "tied_cross_entropy":
        return options
    return {
        "_name": "label_smoothed_cross_entropy",
        "label_smoothing": options["label_smoothing"],
        "report_accuracy": False,
        "ignore_prefix_size": 0,
        "sentence_avg": options["sentence_avg"],
    }
