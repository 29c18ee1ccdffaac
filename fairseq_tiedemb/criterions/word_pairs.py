"""The loss of word2vec models, summed over pairs."""

import math
from typing import Any

from fairseq import utils
from fairseq.criterions import FairseqCriterion, register_criterion
from fairseq.dataclass import FairseqDataclass
from fairseq.logging import metrics
from torch import Tensor

from ..loss_options import check_evaluated


@register_criterion("word_pairs", dataclass=FairseqDataclass)
class WordPairsLoss(FairseqCriterion):
    """The model's own loss, summed over the pairs of a batch.

    An update's gradient is that of the sum over a batch's pairs, or the mean of these sums over ``--update-freq``
    batches and processes, so the learning rate is per pair, as in word2vec.c. Steps (``Word2Vec``) have no gradient.
    """

    takes_the_models_loss = True

    def forward(self, model: Any, sample: dict[str, Any], reduce: bool = True) -> tuple[Tensor, int, dict[str, Any]]:
        """The loss, always a sum, sample size 1, and the values to log; ValueError for a model of another family."""
        if "centres" not in sample["net_input"]:
            needs, got = "--task word_pairs and a model of word2vec's family", type(model).__name__
            raise ValueError(f"--criterion word_pairs: needs {needs}; got {got}. Use --arch word2vec_skipgram.")
        loss, nll_loss = model(**sample["net_input"], target=sample["target"])
        if not model.training:
            check_evaluated(loss)
        logged = {name: sample[name] for name in ("ntokens", "nsentences")} | {"loss": loss.detach(), "sample_size": 1}
        if nll_loss is not None:
            logged["nll_loss"] = nll_loss
        return loss, 1, logged

    @classmethod
    def reduce_metrics(cls, logging_outputs: list[dict[str, Any]]) -> None:
        """Logs the loss per pair in bits, and the perplexity unless the loss is negative sampling."""
        pairs = sum(log.get("ntokens", 0) for log in logging_outputs)
        for name in ("loss", "nll_loss"):
            if values := [log[name] for log in logging_outputs if name in log]:
                metrics.log_scalar(name, sum(values) / max(pairs, 1) / math.log(2), pairs, round=3)
        if any("nll_loss" in log for log in logging_outputs):
            metrics.log_derived("ppl", lambda meters: utils.get_perplexity(meters["nll_loss"].avg))

    @staticmethod
    def logging_outputs_can_be_summed() -> bool:
        return True
