"""Cross entropy that never holds the scores of the vocabulary."""

import math
from dataclasses import dataclass, field
from typing import Any

import torch
from fairseq import utils
from fairseq.criterions import FairseqCriterion, register_criterion
from fairseq.dataclass import FairseqDataclass
from fairseq.distributed.utils import get_data_parallel_world_size
from fairseq.logging import metrics
from omegaconf import II
from torch import Tensor

from ..output_loss import check_label_smoothing


@dataclass
class TiedCrossEntropyConfig(FairseqDataclass):
    """Options of ``tied_cross_entropy``."""

    label_smoothing: float = field(
        default=0.0, metadata={"help": "epsilon in [0, 1) for label smoothing, 0 means no label smoothing"}
    )
    projection_regularization: float = field(
        default=0.0,
        metadata={"help": "lambda of lambda/2 ||P||^2, P being the model's --projection; 0.15 in Press & Wolf (2016)"},
    )
    sentence_avg: bool = II("optimization.sentence_avg")


@register_criterion("tied_cross_entropy", dataclass=TiedCrossEntropyConfig)
class TiedCrossEntropy(FairseqCriterion):
    """Cross entropy with label smoothing, computed by the model from its features and its table.

    Same values as fairseq's ``cross_entropy`` (label smoothing 0) and ``label_smoothed_cross_entropy``, without the
    N x V scores, their logarithms and their gradients in memory, and without products for padding.

    With projection regularization the gradient is that of

        (1 / sample size) * (sum of all token losses of an update + lambda/2 * ||P||_F^2)

    as in Press & Wolf's code, with P's bias left alone; loss and perplexity are logged without it, ``penalty`` apart,
    in bits per unit of sample size, as ``loss`` is.

    Raises:
        ValueError: if ``--label-smoothing`` or ``--projection-regularization`` is out of range, or the model does not
            compute its loss, or has no projection to regularize.

    Source: Press & Wolf 2016, section 3 (projection regularization).
    """

    def __init__(self, task: Any, sentence_avg: bool, label_smoothing: float, projection_regularization: float = 0.0):
        super().__init__(task)
        check_label_smoothing(label_smoothing)
        if projection_regularization < 0.0:
            raise ValueError(
                f"--projection-regularization: needs 0 or more; got {projection_regularization}. Use 0.15, say."
            )
        self.sentence_avg = sentence_avg
        self.label_smoothing = label_smoothing
        self.projection_regularization = projection_regularization

    def forward(
        self, model: torch.nn.Module, sample: dict[str, Any], reduce: bool = True
    ) -> tuple[Tensor, int, dict[str, Any]]:
        """Loss of a batch, summed; what to divide it by; and what to log."""
        if not getattr(model, "computes_loss", False):
            raise ValueError(
                "--criterion tied_cross_entropy: needs a model of fairseq_tiedemb; got "
                f"{type(model).__name__}. Use --criterion label_smoothed_cross_entropy."
            )
        target = sample["target"]
        result = model(**sample["net_input"], target=target, label_smoothing=self.label_smoothing)
        sample_size = target.size(0) if self.sentence_avg else sample["ntokens"]
        logging_output = {
            "loss": result.loss.detach(),
            "nll_loss": result.nll_loss,
            "ntokens": sample["ntokens"],
            "nsentences": target.size(0),
            "sample_size": sample_size,
        }
        if not (self.projection_regularization and model.training):
            return result.loss, sample_size, logging_output
        penalty = self._penalty(model)
        return result.loss + penalty, sample_size, {**logging_output, "penalty": penalty.detach()}

    def _penalty(self, model: Any) -> Tensor:
        """This batch's share of lambda/2 ||P||^2: all of an update's shares add up to it once.

        The trainer adds the gradients of all batches of an update and of all processes, whose number may differ from
        update to update. So the first batch of each process, which finds no gradient yet, takes all of the process's.
        """
        if model.projection is None:
            raise ValueError(
                "--projection-regularization: needs a model with --projection; got one without. Use --projection."
            )
        weight = model.projection.weight
        if weight.grad is not None:
            return weight.new_zeros((), dtype=torch.float32)
        strength = self.projection_regularization / 2 / get_data_parallel_world_size()
        return strength * weight.float().square().sum()

    @classmethod
    def reduce_metrics(cls, logging_outputs: list[dict[str, Any]]) -> None:
        """Logs loss (per ``sample_size``) and nll_loss (per token) in bits, and perplexity per token."""
        total = {
            key: sum(log.get(key, 0) for log in logging_outputs)
            for key in ("loss", "nll_loss", "ntokens", "sample_size", "penalty")
        }
        metrics.log_scalar("loss", total["loss"] / total["sample_size"] / math.log(2), total["sample_size"], round=3)
        metrics.log_scalar("nll_loss", total["nll_loss"] / total["ntokens"] / math.log(2), total["ntokens"], round=3)
        if any("penalty" in log for log in logging_outputs):
            metrics.log_scalar(
                "penalty", total["penalty"] / total["sample_size"] / math.log(2), total["sample_size"], round=3
            )
        metrics.log_derived("ppl", lambda meters: utils.get_perplexity(meters["nll_loss"].avg))

    @staticmethod
    def logging_outputs_can_be_summed() -> bool:
        """Yes: every value is a sum."""
        return True
