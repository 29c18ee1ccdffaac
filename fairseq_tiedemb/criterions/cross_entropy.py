"""Cross entropy without the logits of the whole batch in memory."""

import dataclasses
import math
from dataclasses import dataclass
from typing import Any

import torch
from fairseq import utils
from fairseq.criterions import CRITERION_REGISTRY, FairseqCriterion, register_criterion
from fairseq.dataclass import FairseqDataclass
from fairseq.dataclass.constants import DDP_BACKEND_CHOICES
from fairseq.distributed.utils import get_data_parallel_world_size
from fairseq.logging import metrics
from omegaconf import II
from torch import Tensor

from ..loss_options import WEIGHT, LossOptions, check_evaluated
from ..option_checks import Range, check_value, flag_of, option
from ..regularizers import REGULARIZERS, Regularizer, forget_activations, mark_words
from ..training.extensions import extensions_of


@dataclass
class LossConfig(FairseqDataclass):
    """What ``tied_cross_entropy`` reads of fairseq's other options."""

    sentence_avg: bool = II("optimization.sentence_avg")
    ddp_backend: DDP_BACKEND_CHOICES = II("distributed_training.ddp_backend")


OWN_OPTIONS = {each.name: each for each in dataclasses.fields(LossOptions) if each.name != "reduce"}
STRENGTH = Range(WEIGHT, "a positive number, or leave it out", at_least=0)
REGULARIZERS.load()


class TiedCrossEntropy(FairseqCriterion):
    """Cross entropy with label smoothing, computed by the model's output layer from its features.

    Values equal those of fairseq's ``cross_entropy`` (label smoothing 0) and ``label_smoothed_cross_entropy``, with
    bands those of ``adaptive_loss``, but for ``--z-loss`` and ``--augmented-loss``; see ``output_loss``. The N x V
    logits, their logarithms and gradients are never in memory as a whole, and padding is not computed.

    ``regularizers.py`` defines the penalties. With projection regularization (lambda) and L2 regularization (mu) of all
    parameters w, an update's gradient is that of

        (sum of all token losses + lambda/2 * ||P||_F^2) / sample size + mu/2 * ||w||^2

    Penalties on rows, such as ``--cosine-regularization``, are added to the mean like the last. Loss and perplexity are
    logged without penalties; ``penalty`` is logged in bits per unit of sample size, like ``loss``. An output layer with
    a surrogate loss (``--output-layer nce``) has no perplexity in training and the exact one in validation. With
    ``--output-layer short-list``, ``ppl`` is the exact perplexity. ``outside`` is then the percentage of targets
    outside the list, and ``ppl_as_printed`` the perplexity of the text with these targets replaced by ``<unk>``.

    Raises ValueError if an option is out of range, or the model does not compute its loss, or has nothing to penalise.

    Source: Press & Wolf 2016, section 3 (projection regularization).
    """

    takes_the_models_loss = True

    def __init__(self, task: Any, sentence_avg: bool, label_smoothing: float = 0.0, **options: float):
        super().__init__(task)
        own = {name: options.pop(name) for name in OWN_OPTIONS if name in options}
        self.options = LossOptions(label_smoothing, **own)  # type: ignore[arg-type]
        self.sentence_avg = sentence_avg
        known = {name: default for each in REGULARIZERS.values() for name, (default, _) in each.all_options.items()}
        for name, value in (known | options).items():
            if name not in known:
                needs = "an option that exists"
                raise TypeError(f"tied_cross_entropy: needs {needs}; got {name!r}. Use {', '.join(known)}.")
            check_value(flag_of(name), value, STRENGTH)
            setattr(self, name, value)
        for each in REGULARIZERS.values():
            for name in each.options:
                if getattr(self, name) != known[name] and not getattr(self, each.name):
                    raise ValueError(f"{flag_of(name)}: needs {each.flag}; got {getattr(self, name)} alone. Use both.")
        self._penalties = [each for each in REGULARIZERS.values() if getattr(self, each.name)]
        # Set by the trainer; None without one, when every batch is an update.
        self._first_of_update: bool | None = None
        self._tokens_count = True

    def begin_update(self, model: Any) -> None:
        """Trainer's hook before an update of one or more batches; the first call checks model and output layer.

        Raises ValueError if the model has nothing to penalise, or its output layer lacks the loss or the training text.
        A later error would make fairseq's trainer write a file.
        """
        if self._first_of_update is None:
            _check_model(model)
            model.output.check_training(self.options)
            for regularizer in self._penalties:
                self._weighed(regularizer, model, 1)
        self._first_of_update = True

    def begin_batch(self, *, is_dummy: bool) -> None:
        """Task's hook before a batch; the tokens of a dummy batch, which only keeps processes in step, do not count."""
        self._tokens_count = not is_dummy

    @classmethod
    def build_criterion(cls, cfg: LossConfig, task: Any) -> "TiedCrossEntropy":
        """Builds the criterion; raises ValueError for ``fully_sharded``, whose processes hold parts of the table."""
        if str(cfg.ddp_backend) == "fully_sharded":  # of fairseq-hydra-train, which begins before `compat` is imported
            needs = "the whole table in each process with --criterion tied_cross_entropy"
            raise ValueError(f"--ddp-backend: needs {needs}; got fully_sharded. Use --ddp-backend pytorch_ddp.")
        names = [*OWN_OPTIONS, *(name for each in REGULARIZERS.values() for name in each.all_options)]
        options = {name: getattr(cfg, name) for name in names if hasattr(cfg, name)}
        return cls(task, cfg.sentence_avg, **options)

    def forward(self, model: Any, sample: dict[str, Any], reduce: bool = True) -> tuple[Tensor, int, dict[str, Any]]:
        """Loss of a batch, its sample size, and the values to log.

        With ``reduce`` the loss is the sum, with penalties in training; without, one loss per token, 0 for padding.
        """
        _check_model(model)
        target = sample["target"]
        options = dataclasses.replace(self.options, reduce=reduce)
        loss, nll_loss = model(**sample["net_input"], target=target, loss_options=options)
        if not model.training:
            check_evaluated(loss)
        words, sentences = sample["ntokens"], target.size(0)
        size = sentences if self.sentence_avg else words
        logging_output = {"loss": loss.detach().sum(), "ntokens": words, "nsentences": sentences, "sample_size": size}
        if nll_loss is not None:
            logging_output["nll_loss"] = nll_loss.sum()
        logging_output.update(model.tally(target, sample["net_input"]))
        if not reduce:
            return loss.flatten(), size, logging_output
        if not self._tokens_count:
            loss = loss * 0
        if model.training and self._penalties:
            mark_words(model, target, sample["net_input"])
            penalty = self._penalty(model, size if self._tokens_count else 0)
            loss = loss + penalty
            logging_output["penalty"] = penalty.detach()
        self._tokens_count = True
        return loss, size, logging_output

    def _weighed(self, regularizer: Regularizer, model: Any, weight: float) -> Tensor:
        options = {name: getattr(self, name) for name in regularizer.options}
        return regularizer(model, weight * getattr(self, regularizer.name), **options)

    def _penalty(self, model: Any, sample_size: int) -> Tensor:
        """This batch's share of the penalties, in a sum that the trainer divides by the total sample size.

        The trainer adds the gradients of all batches and processes of an update. A penalty on the sum is added once:
        the first batch of every process, even a dummy, adds one share per process. A penalty on the mean is weighted by
        sample size, and one on a batch's activations is 0 for a dummy.
        """
        penalty = torch.zeros((), device=next(model.parameters()).device)
        for regularizer in self._penalties:
            if regularizer.added_to == "mean":
                penalty = penalty + self._weighed(regularizer, model, sample_size)
            elif regularizer.added_to == "batch":
                penalty = penalty + self._weighed(regularizer, model, float(self._tokens_count))
            elif self._first_of_update is not False:
                penalty = penalty + self._weighed(regularizer, model, 1) / get_data_parallel_world_size()
        forget_activations(model)
        if self._first_of_update:
            self._first_of_update = False
        return penalty

    @classmethod
    def reduce_metrics(cls, logging_outputs: list[dict[str, Any]]) -> None:
        """Logs the loss per unit of sample size, and, if known, nll_loss per token in bits and perplexity."""
        names = dict.fromkeys(name for log in logging_outputs for name in log)
        total = {name: sum(log.get(name, 0) for log in logging_outputs) for name in names}
        tokens, size = total["ntokens"], total["sample_size"]
        metrics.log_scalar("loss", total["loss"] / size / math.log(2), size, round=3)
        if "nll_loss" in total:
            cls._log_perplexity(total["nll_loss"], tokens)
        # What the head tallies: see `Head.tally`.
        for name, value in total.items():
            kind, _, label = name.partition(":")
            if kind == "share":
                metrics.log_scalar(label, 100 * value / tokens, tokens, round=2)
            elif kind == "nll" and "nll_loss" in total:
                cls._log_perplexity(total["nll_loss"] - value, tokens, f"_{label}")
        if "penalty" in total:
            metrics.log_scalar("penalty", total["penalty"] / size / math.log(2), size, round=6)

    @staticmethod
    def _log_perplexity(nll: Any, tokens: Any, suffix: str = "") -> None:
        loss = f"nll_loss{suffix}"
        metrics.log_scalar(loss, nll / tokens / math.log(2), tokens, round=3)
        metrics.log_derived(f"ppl{suffix}", lambda meters: utils.get_perplexity(meters[loss].avg))

    @staticmethod
    def logging_outputs_can_be_summed() -> bool:
        return True


def _check_model(model: Any) -> None:
    if not extensions_of(model).computes_loss:
        needs, use = "a model of fairseq_tiedemb", "--criterion label_smoothed_cross_entropy"
        raise ValueError(f"--criterion tied_cross_entropy: needs {needs}; got {type(model).__name__}. Use {use}.")


def register() -> None:
    """Registers the criterion with the options of all penalties; again when ``--user-dir`` adds one.

    Raises ValueError for two options of one name.
    """
    options = [(name, each.default, each.metadata["help"]) for name, each in OWN_OPTIONS.items()]
    options += [(name, *each.all_options[name]) for each in REGULARIZERS.values() for name in each.all_options]
    fields = [(name, float, option(default, about)) for name, default, about in options]
    names = [name for name, *_ in options]
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise ValueError(f"regularizer: needs options of unused names; got {twice!r}. Use another name.")
    config = dataclasses.make_dataclass("TiedCrossEntropyConfig", fields, bases=(LossConfig,))
    CRITERION_REGISTRY.pop("tied_cross_entropy", None)
    register_criterion("tied_cross_entropy", dataclass=config)(TiedCrossEntropy)


register()
REGULARIZERS.changed = register
