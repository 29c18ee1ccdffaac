"""Cross entropy that never holds the scores of the vocabulary."""

import dataclasses
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

from ..losses import LossOptions, check_evaluated
from ..regularizers import REGULARIZERS


@dataclass
class LossConfig(FairseqDataclass):
    """Options of ``tied_cross_entropy`` but for the penalties."""

    label_smoothing: float = field(
        default=0.0, metadata={"help": "epsilon in [0, 1) for label smoothing, 0 means no label smoothing"}
    )
    z_loss: float = field(
        default=0.0,
        metadata={"help": "weight of (log Z)^2 of each word, which keeps scores close to log-probabilities; 1e-4, say"},
    )
    sentence_avg: bool = II("optimization.sentence_avg")
    ddp_backend: DDP_BACKEND_CHOICES = II("distributed_training.ddp_backend")


TiedCrossEntropyConfig: Any = dataclasses.make_dataclass(
    "TiedCrossEntropyConfig",
    [(each.name, float, field(default=0.0, metadata={"help": each.summary})) for each in REGULARIZERS.values()],
    bases=(LossConfig,),
)


@register_criterion("tied_cross_entropy", dataclass=TiedCrossEntropyConfig)
class TiedCrossEntropy(FairseqCriterion):
    """Cross entropy with label smoothing, computed by the model's output layer from its features.

    Same values as fairseq's ``cross_entropy`` (label smoothing 0) and ``label_smoothed_cross_entropy``, without the
    N x V scores, their logarithms and their gradients in memory, and without products for padding. ``--z-loss`` adds
    z (log Z)^2 for each word (Devlin et al. 2014; Chowdhery et al. 2022).

    Penalties are those of ``regularizers.py``. With projection regularization (lambda) and L2 regularization (mu) of
    all parameters w, an update's gradient is that of

        (sum of all token losses + lambda/2 * ||P||_F^2) / sample size + mu/2 * ||w||^2

    Loss and perplexity are logged without penalties, ``penalty`` apart, in bits per unit of sample size, as ``loss``
    is. An output layer that trains by a surrogate (``--output-layer nce``) has no perplexity in training, and the exact
    one in validation. With a short-list (``--output-layer short-list``), ``ppl`` gives what ``<unk>`` gets back to the
    words outside the list; beside it stand ``outside``, their percentage, and ``ppl_as_printed``, the perplexity of a
    text in which they are ``<unk>``.

    Raises:
        ValueError: if an option is out of range, or the model does not compute its loss, or has nothing to penalise.
        TypeError: for an option that does not exist.

    Source: Press & Wolf 2016, section 3 (projection regularization).
    """

    takes_the_models_loss = True

    def __init__(
        self, task: Any, sentence_avg: bool, label_smoothing: float = 0.0, z_loss: float = 0.0, **strengths: float
    ):
        super().__init__(task)
        self.options = LossOptions(label_smoothing, z_loss)
        self.sentence_avg = sentence_avg
        for name in strengths:
            if name not in REGULARIZERS:
                raise TypeError(
                    f"tied_cross_entropy: needs an option that exists; got {name!r}. Use {', '.join(REGULARIZERS)}."
                )
        for name, regularizer in REGULARIZERS.items():
            value = strengths.get(name, 0.0)
            if not 0.0 <= value < math.inf:
                raise ValueError(
                    f"{regularizer.flag}: needs 0 or more; got {value}. Use a positive number, or leave it out."
                )
            setattr(self, name, value)
        # Told by the trainer; without one every batch is an update.
        self._first_of_update: bool | None = None
        self._tokens_count = True

    def begin_update(self, model: Any) -> None:
        """The trainer says that an update begins, of one batch or several.

        Raises:
            ValueError: before the first, if the model has nothing to penalise, or its output layer has no such loss or
                lacks its training text; fairseq's trainer writes a file of what is raised later.
        """
        if self._first_of_update is None:
            if getattr(model, "computes_loss", False):
                model.output.check_training(self.options)
            for name, regularizer in REGULARIZERS.items():
                if getattr(self, name):
                    regularizer(model, getattr(self, name))
        self._first_of_update = True

    def begin_batch(self, *, is_dummy: bool) -> None:
        """The task says whether a batch is a dummy, which only keeps processes in step: its tokens do not count."""
        self._tokens_count = not is_dummy

    @classmethod
    def build_criterion(cls, cfg: LossConfig, task: Any) -> "TiedCrossEntropy":
        """Builds the criterion.

        Raises:
            ValueError: for ``--ddp-backend fully_sharded``, which gives a process a part of the table only.
        """
        if str(cfg.ddp_backend) == "fully_sharded":
            raise ValueError(
                "--ddp-backend: needs the whole table in each process with --criterion tied_cross_entropy; got "
                "fully_sharded. Use --ddp-backend pytorch_ddp."
            )
        # Of a penalty that was registered later there is no option.
        strengths = {name: getattr(cfg, name) for name in REGULARIZERS if hasattr(TiedCrossEntropyConfig, name)}
        return cls(task, cfg.sentence_avg, cfg.label_smoothing, cfg.z_loss, **strengths)

    def forward(
        self, model: torch.nn.Module, sample: dict[str, Any], reduce: bool = True
    ) -> tuple[Tensor, int, dict[str, Any]]:
        """Loss of a batch, what to divide it by, and what to log.

        Args:
            model: of this package.
            sample: of fairseq's tasks.
            reduce: the sum, with penalties in training; else one number a word, (B * T,), 0 for padding, without.
        """
        if not getattr(model, "computes_loss", False):
            raise ValueError(
                "--criterion tied_cross_entropy: needs a model of fairseq_tiedemb; got "
                f"{type(model).__name__}. Use --criterion label_smoothed_cross_entropy."
            )
        target = sample["target"]
        options = dataclasses.replace(self.options, reduce=reduce)
        loss, nll_loss = model(**sample["net_input"], target=target, loss_options=options)
        if not model.training:
            check_evaluated(loss)
        sample_size = target.size(0) if self.sentence_avg else sample["ntokens"]
        logging_output = {
            "loss": loss.detach().sum(),
            "ntokens": sample["ntokens"],
            "nsentences": target.size(0),
            "sample_size": sample_size,
        }
        if nll_loss is not None:
            logging_output["nll_loss"] = nll_loss.sum()
        logging_output.update(model.tally(target, sample["net_input"]))  # type: ignore[operator]
        if not reduce:
            return loss.flatten(), sample_size, logging_output
        if not self._tokens_count:
            loss = loss * 0
        if model.training and any(getattr(self, name) for name in REGULARIZERS):
            penalty = self._penalty(model, sample_size if self._tokens_count else 0)
            loss = loss + penalty
            logging_output["penalty"] = penalty.detach()
        self._tokens_count = True
        return loss, sample_size, logging_output

    def _penalty(self, model: Any, sample_size: int) -> Tensor:
        """This batch's share of the penalties, in a sum that the trainer divides by all batches' sample sizes.

        The trainer adds the gradients of all batches of an update and of all processes, whose number may differ from
        update to update. What is to be there once is taken by the first batch of each process, which adds the
        process's share, a dummy too; a penalty of the mean as often as the sum of sample sizes says.
        """
        penalty = torch.zeros((), device=next(model.parameters()).device)
        for name, regularizer in REGULARIZERS.items():
            strength = getattr(self, name)
            if not strength:
                continue
            if regularizer.of_the_mean:
                penalty = penalty + regularizer(model, sample_size * strength)
            elif self._first_of_update is not False:
                penalty = penalty + regularizer(model, strength) / get_data_parallel_world_size()
        if self._first_of_update:
            self._first_of_update = False
        return penalty

    @classmethod
    def reduce_metrics(cls, logging_outputs: list[dict[str, Any]]) -> None:
        """Logs loss (per ``sample_size``) and, but for surrogates, nll_loss (per token) in bits, and perplexity."""
        total = {
            key: sum(log.get(key, 0) for log in logging_outputs)
            for key in ("loss", "nll_loss", "ntokens", "sample_size", "penalty", "outside", "outside_nll")
        }
        metrics.log_scalar("loss", total["loss"] / total["sample_size"] / math.log(2), total["sample_size"], round=3)
        if any("nll_loss" in log for log in logging_outputs):
            bits = total["nll_loss"] / total["ntokens"] / math.log(2)
            metrics.log_scalar("nll_loss", bits, total["ntokens"], round=3)
            metrics.log_derived("ppl", lambda meters: utils.get_perplexity(meters["nll_loss"].avg))
        if any("outside" in log for log in logging_outputs):
            metrics.log_scalar("outside", 100 * total["outside"] / total["ntokens"], total["ntokens"], round=2)
            as_printed = (total["nll_loss"] - total["outside_nll"]) / total["ntokens"] / math.log(2)
            metrics.log_scalar("nll_loss_as_printed", as_printed, total["ntokens"], round=3)
            metrics.log_derived(
                "ppl_as_printed", lambda meters: utils.get_perplexity(meters["nll_loss_as_printed"].avg)
            )
        if any("penalty" in log for log in logging_outputs):
            metrics.log_scalar(
                "penalty", total["penalty"] / total["sample_size"] / math.log(2), total["sample_size"], round=6
            )

    @staticmethod
    def logging_outputs_can_be_summed() -> bool:
        """Yes: every value is a sum."""
        return True
