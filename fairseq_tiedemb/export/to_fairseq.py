"""A checkpoint of ours as one of stock fairseq's, where method, projection and factors fold into its tables."""

from argparse import Namespace
from collections import OrderedDict
from collections.abc import Mapping
from typing import Any

import numpy as np
from torch import Tensor, nn

from fairseq_tiedemb.embedding import SharedEmbedding
from fairseq_tiedemb.export.folding import fold_input, fold_output
from fairseq_tiedemb.export.settings import as_dict, settings_of
from fairseq_tiedemb.export.targets import instead_of, needs_bias, require, sharing_of, stays_tied
from fairseq_tiedemb.export.weights import require_weights
from fairseq_tiedemb.modules.factorized import FactorizedInput, narrowing
from fairseq_tiedemb.outputs import OutputLayer
from fairseq_tiedemb.sharing import SharingMethod
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
        ValueError: if fairseq has no such model, its method cannot be folded, or the checkpoint lacks something.
    """
    config = settings_of(state, name, sections=("common", "criterion"))
    require("fairseq", config)
    require_weights(state["model"], name)
    options = as_dict(config["model"])
    stock = str(options.get("_name") or options.get("arch")).removeprefix("tied_")
    stock_options = {key: value for key, value in options.items() if key not in OURS}
    stock_options |= {key: stock for key in ("arch", "_name") if key in options}
    if not stays_tied(config):
        stock_options |= {key: False for key in SHARING_FLAGS if key in stock_options}
    as_saved = as_namespace and isinstance(config["model"], Namespace)
    exported = {
        **config,
        "model": Namespace(**stock_options) if as_saved else _plain(stock_options),
        "common": {**as_dict(config["common"]), "user_dir": None},
        "criterion": _stock_criterion(config["criterion"]),
    }
    kept = {key: value for key, value in state.items() if key != "last_optimizer_state"}
    if "extra_state" in kept:
        # fairseq makes the EMA's float32 copy from the other where it is missing.
        extra = {key: value for key, value in kept["extra_state"].items() if key != "ema_fp32_params"}
        kept["extra_state"] = extra | ({"ema": _fold(extra["ema"], config)} if "ema" in extra else {})
    return _with_plain_numbers({**kept, "cfg": exported, "model": _fold(state["model"], config)})


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


def _fold(model: dict[str, Tensor], settings: Mapping[str, Any]) -> dict[str, Tensor]:
    """The parameters of the stock model that computes the same, in the precision of ours."""
    method = sharing_of(settings)
    if method.is_plain and stays_tied(settings):
        return model
    tables = {OUTPUT: _output_table(model, settings)}
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


def _output_table(model: dict[str, Tensor], settings: Mapping[str, Any]) -> Tensor:
    """M (V, D), of scores without a bias.

    Raises:
        ValueError: if the model has no such table, or its scores have a bias.
    """
    method = sharing_of(settings)
    entries, projection, factor = _below(model, OUTPUT), None, None
    weight = next((entries[name] for name in ("weight", "layer.weight") if name in entries), None)
    if weight is None:
        raise ValueError(
            f"CHECKPOINT: needs a table of output vectors; got a model without {OUTPUT}, whose file is incomplete. Use "
            "the checkpoint of the training as it was saved."
        )
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
    named = f"--sharing-method {method.name}"
    scores = fold_output(layer.scores, width, named=named)
    if scores.bias_V.any():
        lacking = needs_bias("a sharing method that only scales", named)
        raise ValueError(f"CHECKPOINT: {lacking}. Use {instead_of('fairseq', settings)}.")
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
