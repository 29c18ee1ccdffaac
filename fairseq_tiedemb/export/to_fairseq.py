"""Converts a checkpoint of ours to stock fairseq's: sharing method, projection and factors are folded into tables."""

import dataclasses
from argparse import Namespace
from collections import OrderedDict
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from fairseq_tiedemb.checkpoints.meaning import MERGED, THREE_WAY, TYING
from fairseq_tiedemb.checkpoints.table_names import INPUTS, OUTPUT, PADDING_ROW
from fairseq_tiedemb.embedding import SharedEmbedding
from fairseq_tiedemb.export.folding import fold_output
from fairseq_tiedemb.export.targets import (
    constants_of,
    instead_of,
    is_untied_in_fairseq,
    needs_bias,
    require,
    sharing_of,
    stays_tied,
    stock_arch,
)
from fairseq_tiedemb.loading import checked_settings
from fairseq_tiedemb.models._fairseqs import FairseqsLMConfig, FairseqsTranslationConfig
from fairseq_tiedemb.modules.factorized import FactorizedInput
from fairseq_tiedemb.outputs import OutputLayer
from fairseq_tiedemb.precision import exact_dtype

# Our options, which fairseq does not know.
OURS = {field.name for each in (FairseqsLMConfig, FairseqsTranslationConfig) for field in dataclasses.fields(each)}
P = "decoder.projection."


def export(state: dict[str, Any], *, name: str, as_namespace: bool = False) -> dict[str, Any]:
    """Returns the checkpoint of a stock fairseq model that computes the same logits.

    A sharing method, a projection P and a factorised table are folded into one matrix of input vectors and one of
    output vectors (``folding``). If the two are the same matrix, the stock model stays tied; otherwise it is untied and
    has one more table. fairseq's models have no output bias.

    torch >= 2.6 reads tensors and plain values only, unless the caller opts out, which fairseq does not. Two kinds of
    values saved by fairseq-train are not plain: the Namespace of a model without a dataclass, and numpy's numbers.

    Args:
        state: a checkpoint as torch saved it; it is not changed.
        name: the file, for errors.
        as_namespace: keep such a Namespace, as fairseq-train saves it, instead of a dict.

    Returns:
        A checkpoint without the optimizer's state, but with the exported moving average of ``--store-ema``, if any.

    Raises:
        ValueError: if fairseq has no such model, the sharing method cannot be folded, or the checkpoint is incomplete.
    """
    config = checked_settings(state, name, sections=("common", "criterion"))
    require("fairseq", config)
    options = config["model"]
    stock = stock_arch(config)
    stock_options = {key: value for key, value in options.items() if key not in OURS}
    stock_options |= {key: stock for key in ("arch", "_name") if key in options}
    if is_untied_in_fairseq(config):
        stock_options |= {key: False for key in (TYING, THREE_WAY, MERGED) if key in stock_options}
    criterion = config["criterion"]
    if criterion.get("_name") == "tied_cross_entropy":  # of which fairseq-validate can build fairseq's equivalent
        criterion = {key: criterion[key] for key in ("label_smoothing", "sentence_avg")}
        criterion |= {"_name": "label_smoothed_cross_entropy", "report_accuracy": False, "ignore_prefix_size": 0}
    as_saved = as_namespace and isinstance((state.get("cfg") or {}).get("model"), Namespace)
    exported = {
        **config,
        "model": Namespace(**stock_options) if as_saved else _plain(stock_options),
        "common": {**config["common"], "user_dir": None},
        "criterion": criterion,
    }
    kept = {key: value for key, value in state.items() if key != "last_optimizer_state"}
    if extra := kept.get("extra_state"):
        # fairseq restores a missing float32 copy of the EMA from the other copy.
        kept["extra_state"] = {key: value for key, value in extra.items() if key != "ema_fp32_params"}
        if "ema" in extra:
            kept["extra_state"]["ema"] = _fold(extra["ema"], config)
    return _with_plain_numbers({**kept, "cfg": exported, "model": _fold(state["model"], config)})


def _plain(options: dict[str, Any]) -> dict[str, Any]:
    """Repeats the single kernel width of a convolutional model, since fairseq cannot repeat it in OmegaConf's list.

    Source: fairseq's models/lightconv.py:1051, lightconv_lm.py:287.
    """
    repeated = dict(options)
    for side in ("encoder", "decoder"):
        name = f"{side}_kernel_size_list"
        if len(options.get(name) or ()) == 1:
            repeated[name] = list(options[name]) * options[f"{side}_layers"]
            if len(repeated[name]) == 1:
                needs = f"namespace for a convolutional model with one {side} layer"
                got = "dict, from which fairseq cannot build it"
                raise ValueError(f"--settings: needs {needs}; got {got}. Use --settings namespace.")
    return repeated


def _with_plain_numbers(value: Any) -> Any:
    """Replaces numpy's numbers by Python's and numpy's arrays by lists."""
    if isinstance(value, np.generic | np.ndarray):
        return value.tolist()
    if type(value) in (dict, OrderedDict):
        return type(value)((key, _with_plain_numbers(item)) for key, item in value.items())
    return type(value)(map(_with_plain_numbers, value)) if type(value) in (list, tuple) else value


def _fold(model: dict[str, Tensor], settings: Mapping[str, Any]) -> dict[str, Tensor]:
    """Returns the parameters of the stock model with the same logits, folded tables in float32 or more precise."""
    method = sharing_of(settings)
    if method.is_plain and stays_tied(settings):
        return model
    tables = {OUTPUT: _output_table(model, settings)}
    for key in INPUTS:
        entries = _below(model, key)
        if "weight" in entries or "table.weight" in entries:  # else adaptive, or computed from characters
            tables[key] = _input_table(entries, settings)
    folded = (P, *(key.removesuffix("weight") for key in tables))
    return {**{key: value for key, value in model.items() if not key.startswith(folded)}, **tables}


def _below(model: dict[str, Tensor], table: str) -> dict[str, Tensor]:
    """Returns the entries of a table's module, by their names within the module."""
    prefix = table.removesuffix("weight")
    return {key.removeprefix(prefix): value for key, value in model.items() if key.startswith(prefix)}


@torch.no_grad()
def _input_table(entries: dict[str, Tensor], settings: Mapping[str, Any]) -> Tensor:
    """Returns the input vectors (V, D)."""
    factor = entries.get("projection.weight")
    narrow = entries["weight" if factor is None else "table.weight"]
    table = _table(narrow, settings, scores=False)
    embed: nn.Module = table if factor is None else FactorizedInput(table, len(factor))
    return _loaded(embed, entries)(torch.arange(len(narrow))).to(exact_dtype(narrow))


def _output_table(model: dict[str, Tensor], settings: Mapping[str, Any]) -> Tensor:
    """Returns M (V, D) of logits without a bias; ValueError if they have one, or the model has no output table."""
    entries, projection, factor = _below(model, OUTPUT), None, None
    weight = next((entries[name] for name in ("weight", "layer.weight") if name in entries), None)
    if weight is None:
        use = "the checkpoint of the training as it was saved"
        raise ValueError(f"CHECKPOINT: needs an output embedding; got an incomplete model without {OUTPUT}. Use {use}.")
    table = _table(weight, settings, embeds=False)
    width = weight.size(1)
    of_factor = next((entries[name] for name in ("factor.weight", "projection.weight") if name in entries), None)
    if of_factor is not None:
        width = of_factor.size(1)
        factor = nn.Linear(width, len(of_factor), bias=False)
    if f"{P}weight" in model:
        width = model[f"{P}weight"].size(1)
        projection = _loaded(nn.Linear(width, len(model[f"{P}weight"]), bias=False), _below(model, f"{P}weight"))
    layer = _loaded(OutputLayer(table, projection=projection, factor=factor), entries)
    named = f"--sharing-method {sharing_of(settings).name}"
    matrix_VD, bias_V = fold_output(layer.scores, width, named=named)
    if bias_V.any():
        lacking = needs_bias("a sharing method that only scales", named)
        raise ValueError(f"CHECKPOINT: {lacking}. Use {instead_of('fairseq', settings)}.")
    return matrix_VD.to(exact_dtype(weight))


def _table(weight: Tensor, settings: Mapping[str, Any], **parts: bool) -> SharedEmbedding:
    (size, width), method = weight.shape, sharing_of(settings).name
    parameter, constants = nn.Parameter(weight.double(), requires_grad=False), constants_of(settings)
    return SharedEmbedding(size, width, PADDING_ROW, method=method, weight=parameter, constants=constants, **parts)


def _loaded(module: Any, entries: dict[str, Tensor]) -> Any:
    """Loads all entries that a module needs, in float64; a tied table may have more."""
    missing = module.double().eval().load_state_dict(entries, strict=False).missing_keys
    if missing:
        needs = "all parameters of its sharing method"
        use = "--user-dir with the package that registered the method in training"
        raise ValueError(f"CHECKPOINT: needs {needs}; got none for {', '.join(missing)}. Use {use}.")
    return module
