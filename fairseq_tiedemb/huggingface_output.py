"""The output embedding that models of Transformers have in the place of theirs, and the loss of its features."""

import copy
import dataclasses
import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .embedding import SharedEmbedding
from .losses import LossOptions
from .sharing import sharing_method

IGNORED = -100  # the label of tokens that are not predicted


class OtherLogits(Exception):
    """A model makes something of its logits that the loss cannot."""


class TiedOutput(nn.Module):
    """The output embedding of a model of Transformers: the scores of a table, and a bias if the model has one.

    While it ``is_asked`` for ``features``, it keeps them, and returns a probe in place of scores: zeros, and numbers
    from 0.01 to 10,000 of both signs, (1, 2, V), by which ``logits_of`` sees what the model makes of its logits.
    """

    table: SharedEmbedding

    def __init__(self, table: SharedEmbedding, bias: nn.Parameter | None):
        super().__init__()
        self.register_parameter("bias", bias)
        self.__dict__["table"] = table  # hidden from torch's registry
        self.out_features, self.in_features = table.weight.shape
        self.is_asked = False
        self.features: Any = None

    def forward(self, features: Tensor) -> Tensor:
        self.features = features if self.is_asked else None
        scores, bias = self.probe() if self.is_asked else self.table.scores(features), self.own_bias()
        return scores if bias is None else scores + bias

    def own_bias(self) -> Any:
        """The model's bias, without the method's offset."""
        return vars(self).get("bias", self._parameters.get("bias"))  # the former of a replica

    def __getattr__(self, name: str) -> Any:
        """As torch's; ``weight`` and ``bias`` are the matrix (V, D) and the offset (V,) of the method's scores.

        TRL computes its loss from them, and not by ``forward``. The table has the parameter. AttributeError for the
        weight of a method that maps features.
        """
        if name not in ("weight", "bias"):
            return super().__getattr__(name)
        own, method = self.table.weight, sharing_method(self.table.method)
        if name == "weight" and method.feature_map is not None:
            needs, use = "a sharing method without a map of the features", "cosine, say, or Transformers' Trainer"
            raise AttributeError(f"lm_head.weight: needs {needs}; got {method.name}. Use {use}.")
        if name == "weight" and not method.uses_norms:
            return own
        rows = self.table.rows(torch.arange(self.out_features, device=own.device), (own, self.own_bias()))
        term = rows.offset if name == "bias" else rows.matrix
        return None if term is None else term.to(own.dtype)

    def __setattr__(self, name: str, value: Any) -> None:
        if name != "weight":  # which Transformers and accelerate tie
            super().__setattr__(name, value)

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *others: Any) -> None:
        state_dict.pop(f"{prefix}weight", None)  # that of version 0.1.50
        super()._load_from_state_dict(state_dict, prefix, *others)

    def probe(self) -> Tensor:
        numbers = torch.logspace(-2, 4, self.out_features, device=self.table.weight.device)
        numbers[1::2] *= -1
        return torch.stack((torch.zeros_like(numbers), numbers)).unsqueeze(0)


def logits_of(output: TiedOutput, made: Tensor) -> SharedEmbedding:
    """A copy of the table, with its parameters, whose logits are what a model makes of the table's scores z.

    They are c tanh(s z / c) or s z + b, with numbers that the model shows by what it ``made`` of the probe. Raises
    OtherLogits for anything else.
    """
    table, z = output.table, output.probe()[0, 1].double()
    if made.shape != (1, 2, len(z)):
        raise OtherLogits
    bias, y = made.detach()[0].double()
    y, largest = y - bias, bias.abs().max().item()
    s, c = (y[-1] / z[-1]).item(), None
    if not torch.allclose(y, s * z, rtol=1e-5, atol=1e-5 * (1 + largest)):
        s, c = (y[0] / z[0]).item(), y.abs().max().item()
        if largest or not c or not torch.allclose(y, c * (s * z / c).tanh(), rtol=1e-5):
            raise OtherLogits
    is_scaled, method = not math.isclose(s, 1, rel_tol=1e-5), sharing_method(table.method)
    if not s > 0 or (is_scaled and (method.offset or method.feature_map)):  # whose scores are no product with features
        raise OtherLogits
    own: Any = copy.copy(table)
    scale = table.constants.logit_scale * (s if is_scaled else 1)
    own.constants = dataclasses.replace(table.constants, logit_scale=scale, logit_soft_cap=c)
    if largest or made.requires_grad:
        own._parameters = {**table._parameters, "bias": made[0, 0]}
    return own


def loss_of_features(
    output: TiedOutput,
    options: LossOptions,
    logits: Tensor,
    labels: Tensor,
    *_: Any,
    num_items_in_batch: Any = None,
    ignore_index: int = IGNORED,
    shift_labels: Tensor | None = None,
    **__: Any,
) -> Tensor:
    """Transformers' loss of a language model, of the output's features (B, T, D); ``logits`` is made of its probe."""
    features_BTD = output.features
    shape, is_shifted = features_BTD.shape[:-1], shift_labels is not None
    target: Any = shift_labels if is_shifted else F.pad(labels, (0, 1), value=ignore_index)[..., 1:]
    if target.shape != shape and not (is_shifted and target.numel() == shape.numel()):  # flat, say
        needs, got = f"shape {tuple(shape)}, that of the features", tuple(target.shape)
        name = "shift_labels" if is_shifted and target is not labels else "labels"
        raise ValueError(f"{name}: needs {needs}; got {got}. Use one for each token, {ignore_index} for none.")
    table, target_N = logits_of(output, logits), target.flatten().to(features_BTD.device)
    words_N = target_N.ne(ignore_index).nonzero().squeeze(1)
    features_ND = features_BTD.flatten(0, -2).index_select(0, words_N)
    loss = table.loss(features_ND, target_N.index_select(0, words_N), options).loss
    return loss / (len(words_N) if num_items_in_batch is None else num_items_in_batch)
