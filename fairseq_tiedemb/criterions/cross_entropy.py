"""Cross entropy that never holds the scores of the vocabulary."""

import math
from dataclasses import dataclass, field
from typing import Any

import torch
from fairseq import utils
from fairseq.criterions import FairseqCriterion, register_criterion
from fairseq.dataclass import FairseqDataclass
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
    sentence_avg: bool = II("optimization.sentence_avg")


@register_criterion("tied_cross_entropy", dataclass=TiedCrossEntropyConfig)
class TiedCrossEntropy(FairseqCriterion):
    """Cross entropy with label smoothing, computed by the model from its features and its table.

    Same values as fairseq's ``cross_entropy`` (label smoothing 0) and ``label_smoothed_cross_entropy``, without the
    N x V scores, their logarithms and their gradients in memory, and without products for padding.

    Raises:
        ValueError: if ``--label-smoothing`` is out of range, or the model does not compute its loss.
    """

    def __init__(self, task: Any, sentence_avg: bool, label_smoothing: float):
        super().__init__(task)
        check_label_smoothing(label_smoothing)
        self.sentence_avg = sentence_avg
        self.label_smoothing = label_smoothing

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
        return (
            result.loss,
            sample_size,
            {
                "loss": result.loss.detach(),
                "nll_loss": result.nll_loss,
                "ntokens": sample["ntokens"],
                "nsentences": target.size(0),
                "sample_size": sample_size,
            },
        )

    @classmethod
    def reduce_metrics(cls, logging_outputs: list[dict[str, Any]]) -> None:
        """Logs loss (per ``sample_size``) and nll_loss (per token) in bits, and perplexity per token."""
        total = {
            key: sum(log.get(key, 0) for log in logging_outputs)
            for key in ("loss", "nll_loss", "ntokens", "sample_size")
        }
        metrics.log_scalar("loss", total["loss"] / total["sample_size"] / math.log(2), total["sample_size"], round=3)
        metrics.log_scalar("nll_loss", total["nll_loss"] / total["ntokens"] / math.log(2), total["ntokens"], round=3)
        metrics.log_derived("ppl", lambda meters: utils.get_perplexity(meters["nll_loss"].avg))

    @staticmethod
    def logging_outputs_can_be_summed() -> bool:
        """Yes: every value is a sum."""
        return True
