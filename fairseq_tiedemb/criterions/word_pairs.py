"""The loss of word2vec's models, summed over pairs."""

import math
from dataclasses import dataclass
from typing import Any

import torch
from fairseq import utils
from fairseq.criterions import FairseqCriterion, register_criterion
from fairseq.dataclass import FairseqDataclass
from fairseq.logging import metrics
from torch import Tensor

from ..losses import check_evaluated


@dataclass
class WordPairsLossConfig(FairseqDataclass):
    """``word_pairs`` has no options."""


@register_criterion("word_pairs", dataclass=WordPairsLossConfig)
class WordPairsLoss(FairseqCriterion):
    """The loss that a model of word2vec's family states, of all pairs of a batch.

    The gradient of an update is that of the sum over the pairs of a batch (of several, with ``--update-freq`` or
    several processes, of the mean of their sums), so that a learning rate is one of word2vec.c's, per pair. Logged is
    the loss of a pair in bits; perplexity only where the loss is a cross entropy, and not for negative sampling.

    Raises:
        ValueError: if the model is none of that family.
    """

    takes_the_models_loss = True

    def forward(
        self, model: torch.nn.Module, sample: dict[str, Any], reduce: bool = True
    ) -> tuple[Tensor, int, dict[str, Any]]:
        """Loss of a batch, 1, and what to log.

        Args:
            model: of word2vec's family.
            sample: of ``word_pairs``.
            reduce: the sum.
        """
        if not getattr(model, "computes_loss", False) or "centres" not in sample["net_input"]:
            raise ValueError(
                f"--criterion word_pairs: needs --task word_pairs and a model of word2vec's family; got "
                f"{type(model).__name__}. Use --arch word2vec_skipgram."
            )
        losses = model(**sample["net_input"], target=sample["target"])
        if not model.training:
            check_evaluated(losses.loss)
        logged = {
            "loss": losses.loss.detach(),
            "ntokens": sample["ntokens"],
            "nsentences": sample["nsentences"],
            "sample_size": 1,
        }
        if losses.nll_loss is not None:
            logged["nll_loss"] = losses.nll_loss
        return losses.loss, 1, logged

    @classmethod
    def reduce_metrics(cls, logging_outputs: list[dict[str, Any]]) -> None:
        """Logs the loss of a pair in bits, and perplexity where there is one."""
        pairs = sum(log.get("ntokens", 0) for log in logging_outputs)
        for name in ("loss", "nll_loss"):
            if any(name in log for log in logging_outputs):
                total = sum(log.get(name, 0) for log in logging_outputs)
                metrics.log_scalar(name, total / max(pairs, 1) / math.log(2), pairs, round=3)
        if any("nll_loss" in log for log in logging_outputs):
            metrics.log_derived("ppl", lambda meters: utils.get_perplexity(meters["nll_loss"].avg))

    @staticmethod
    def logging_outputs_can_be_summed() -> bool:
        """Yes: every value is a sum."""
        return True
