"""Cross entropy that never holds the scores of the vocabulary."""

import math
from dataclasses import dataclass, field
from typing import Any

import torch
from fairseq import utils
from fairseq.criterions import FairseqCriterion, register_criterion
from fairseq.dataclass import FairseqDataclass
from fairseq.dataclass.constants import DDP_BACKEND_CHOICES
from fairseq.distributed.utils import get_data_parallel_world_size
from fairseq.logging import metrics
from omegaconf import II
from torch import Tensor

from ..output_loss import check_label_smoothing, check_z_loss


@dataclass
class TiedCrossEntropyConfig(FairseqDataclass):
    """Options of ``tied_cross_entropy``."""

    label_smoothing: float = field(
        default=0.0, metadata={"help": "epsilon in [0, 1) for label smoothing, 0 means no label smoothing"}
    )
    z_loss: float = field(
        default=0.0,
        metadata={"help": "weight of (log Z)^2 of each word, which keeps scores close to log-probabilities; 1e-4, say"},
    )
    projection_regularization: float = field(
        default=0.0,
        metadata={"help": "lambda of lambda/2 ||P||^2, P being the model's --projection; 0.15 in Press & Wolf (2016)"},
    )
    l2_regularization: float = field(
        default=0.0,
        metadata={"help": "mu of mu/2 ||all parameters||^2, added to the mean loss: weight decay that clipping sees"},
    )
    sentence_avg: bool = II("optimization.sentence_avg")
    ddp_backend: DDP_BACKEND_CHOICES = II("distributed_training.ddp_backend")


@register_criterion("tied_cross_entropy", dataclass=TiedCrossEntropyConfig)
class TiedCrossEntropy(FairseqCriterion):
    """Cross entropy with label smoothing, computed by the model from its features and its table.

    Same values as fairseq's ``cross_entropy`` (label smoothing 0) and ``label_smoothed_cross_entropy``, without the
    N x V scores, their logarithms and their gradients in memory, and without products for padding. ``--z-loss`` adds
    z (log Z)^2 for each word (Devlin et al. 2014; Chowdhery et al. 2022).

    With projection regularization (lambda) and L2 regularization (mu) of all parameters w, an update's gradient is that
    of

        (sum of all token losses + lambda/2 * ||P||_F^2) / sample size + mu/2 * ||w||^2

    lambda as in Press & Wolf's code, with P's bias left alone, mu as in Zilly et al.'s. Loss and perplexity are logged
    without penalties, ``penalty`` apart, in bits per unit of sample size, as ``loss`` is.

    Raises:
        ValueError: if an option is out of range, or the model does not compute its loss, or has no projection to
            regularize.

    Source: Press & Wolf 2016, section 3 (projection regularization).
    """

    def __init__(
        self,
        task: Any,
        sentence_avg: bool,
        label_smoothing: float,
        z_loss: float = 0.0,
        projection_regularization: float = 0.0,
        l2_regularization: float = 0.0,
    ):
        super().__init__(task)
        check_label_smoothing(label_smoothing)
        check_z_loss(z_loss)
        for flag, value in (
            ("--projection-regularization", projection_regularization),
            ("--l2-regularization", l2_regularization),
        ):
            if not value >= 0.0:
                raise ValueError(f"{flag}: needs 0 or more; got {value}. Use a positive number, or leave it out.")
        self.sentence_avg = sentence_avg
        self.label_smoothing = label_smoothing
        self.z_loss = z_loss
        self.projection_regularization = projection_regularization
        self.l2_regularization = l2_regularization

    @classmethod
    def build_criterion(cls, cfg: TiedCrossEntropyConfig, task: Any) -> "TiedCrossEntropy":
        """Builds the criterion.

        Raises:
            ValueError: for ``--ddp-backend fully_sharded``, which gives a process a part of the table only.
        """
        if str(cfg.ddp_backend) == "fully_sharded":
            raise ValueError(
                "--ddp-backend: needs the whole table in each process with --criterion tied_cross_entropy; got "
                "fully_sharded. Use --ddp-backend pytorch_ddp."
            )
        return super().build_criterion(cfg, task)

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
        result = model(**sample["net_input"], target=target, label_smoothing=self.label_smoothing, z_loss=self.z_loss)
        sample_size = target.size(0) if self.sentence_avg else sample["ntokens"]
        logging_output = {
            "loss": result.loss.detach(),
            "nll_loss": result.nll_loss,
            "ntokens": sample["ntokens"],
            "nsentences": target.size(0),
            "sample_size": sample_size,
        }
        loss = result.loss
        if model.training and (self.projection_regularization or self.l2_regularization):
            penalty = self._penalty(model, sample_size)
            loss = loss + penalty
            logging_output["penalty"] = penalty.detach()
        return loss, sample_size, logging_output

    def _penalty(self, model: Any, sample_size: int) -> Tensor:
        """This batch's share of the penalties, in a sum that the trainer divides by all batches' sample sizes.

        The trainer adds the gradients of all batches of an update and of all processes, whose number may differ from
        update to update. lambda/2 ||P||^2 is to be there once, so the first batch of each process, which finds no
        gradient yet, takes the process's share; mu/2 ||w||^2 as often as the sum of sample sizes says.
        """
        penalty = torch.zeros((), device=next(model.parameters()).device)
        if self.projection_regularization:
            projection = getattr(model, "projection", None)
            if projection is None:
                raise ValueError(
                    "--projection-regularization: needs a model with --projection; got "
                    f"{self.projection_regularization} and a model without. Use --projection."
                )
            if projection.weight.grad is None:
                strength = self.projection_regularization / 2 / get_data_parallel_world_size()
                penalty = penalty + strength * _squared_norm(projection.weight)
        if self.l2_regularization:
            norms = torch.stack([_squared_norm(parameter) for parameter in model.parameters()])
            penalty = penalty + sample_size * self.l2_regularization / 2 * norms.sum()
        return penalty

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
                "penalty", total["penalty"] / total["sample_size"] / math.log(2), total["sample_size"], round=6
            )
        metrics.log_derived("ppl", lambda meters: utils.get_perplexity(meters["nll_loss"].avg))

    @staticmethod
    def logging_outputs_can_be_summed() -> bool:
        """Yes: every value is a sum."""
        return True


def _squared_norm(weight: Tensor) -> Tensor:
    """In float32 at least, whose range squares need."""
    return weight.to(torch.promote_types(weight.dtype, torch.float32)).square().sum()
