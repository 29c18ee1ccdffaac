"""Turns a checkpoint of ours into one of stock fairseq's, where its sharing method can be folded into tables."""

from argparse import Namespace
from typing import Any

import torch
from torch import Tensor, nn

from fairseq_tiedemb.embedding import SharedEmbedding
from fairseq_tiedemb.sharing import NormFunction, SharingMethod, sharing_method

INPUTS = ("encoder.embed_tokens.weight", "decoder.embed_tokens.weight")
OUTPUT = "decoder.output_projection.weight"
PADDING = 1  # the number of fairseq's padding symbol
# Options that make tables one in fairseq, and those that it does not know.
SHARING_FLAGS = ("share_all_embeddings", "share_decoder_input_output_embed", "merge_src_tgt_embed")
OURS = ("sharing_method", "embedding_rank")


def export(state: dict[str, Any], *, name: str) -> dict[str, Any]:
    """The checkpoint of the stock model that computes the same.

    A method's vectors are input_scale(n_v) w_v, its scores scale(n_v) (w_v . h) + offset(n_v), with n_v = ||w_v||^2. So
    without an offset the stock model's rows are input_scale(n_v) w_v for the input and scale(n_v) w_v for the output:
    one table, if the two functions are the same, else two, and the stock model is untied.

    Args:
        state: a checkpoint as torch saved it.
        name: of its file, for errors.

    Returns:
        A checkpoint without the optimiser's state, with the moving average (``--store-ema``) of the stock model where
        there is one; ``state`` is not changed.

    Raises:
        ValueError: if fairseq has no such model, or its method, bands or factors cannot be folded.
    """
    config = state.get("cfg")
    if not isinstance(config, dict):
        raise ValueError(
            f"CHECKPOINT: needs settings of fairseq 0.10 or newer; got {name}, which has none. Train again."
        )
    options = _as_dict(config["model"])
    stock = _stock_architecture(options, name)
    method = sharing_method(str(options.get("sharing_method") or "plain"))
    _check(options, method.name, folds=method.uses_norms, has_offset=method.offset is not None)
    options = {key: value for key, value in options.items() if key not in OURS}
    options |= {key: stock for key in ("arch", "_name") if key in options}
    if method.input_scale is not method.scale:
        options |= {key: False for key in SHARING_FLAGS if key in options}
    exported = {
        **config,
        "model": Namespace(**options) if isinstance(config["model"], Namespace) else options,
        "common": {**config["common"], "user_dir": None},
        "criterion": _stock_criterion(config["criterion"]),
    }
    kept = {key: value for key, value in state.items() if key != "last_optimizer_state"}
    if "extra_state" in kept:
        # fairseq makes the EMA's float32 copy from the other where it is missing.
        extra = {key: value for key, value in kept["extra_state"].items() if key != "ema_fp32_params"}
        kept["extra_state"] = extra | ({"ema": _fold_tables(extra["ema"], method)} if "ema" in extra else {})
    return {**kept, "cfg": exported, "model": _fold_tables(state["model"], method)}


def _as_dict(options: Any) -> dict[str, Any]:
    """Options of a model, which fairseq saves as a Namespace or as a dictionary."""
    return dict(vars(options)) if isinstance(options, Namespace) else dict(options)


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


def _check(options: dict[str, Any], method: str, *, folds: bool, has_offset: bool) -> None:
    if has_offset:
        raise ValueError(
            f"CHECKPOINT: needs a sharing method that only scales; got --sharing-method {method}, which adds a term to "
            "each word's score, for which fairseq's models have no output bias. Use it with --user-dir fairseq_tiedemb."
        )
    refused = ["embedding_rank"] + ["adaptive_input", "adaptive_softmax_cutoff"] * folds
    for option in refused:
        if options.get(option):
            raise ValueError(
                f"CHECKPOINT: needs one table as wide as the model; got --{option.replace('_', '-')} "
                f"{options[option]}, with --sharing-method {method}. Use it with --user-dir fairseq_tiedemb."
            )


def _fold_tables(model: dict[str, Tensor], method: SharingMethod) -> dict[str, Tensor]:
    """The parameters of the stock model that computes the same."""
    if not method.uses_norms:
        return model
    inputs = {key: _folded(model[key], method.input_scale) for key in INPUTS if key in model}
    return {**model, **inputs, OUTPUT: _folded(model[OUTPUT], method.scale)}


def _folded(weight: Tensor, function: NormFunction | None) -> Tensor:
    """Rows f(n_v) w_v in the precision of the table."""
    if function is None:
        return weight
    size, width = weight.shape
    table = SharedEmbedding(size, width, PADDING, weight=nn.Parameter(weight, requires_grad=False))
    with torch.no_grad():
        return (weight * function(table.squared_norms()).unsqueeze(1)).to(weight.dtype)


def _stock_criterion(options: Any) -> Any:
    """fairseq's criterion for ours, so that fairseq-validate can build it."""
    options = _as_dict(options)
    if options.get("_name") != "tied_cross_entropy":
        return options
    return {
        "_name": "label_smoothed_cross_entropy",
        "label_smoothing": options["label_smoothing"],
        "report_accuracy": False,
        "ignore_prefix_size": 0,
        "sentence_avg": options["sentence_avg"],
    }
