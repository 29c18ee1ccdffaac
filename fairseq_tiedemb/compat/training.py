"""Training: precision, averages, losses, messages."""

import argparse
import types
from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

import torch
import torch.nn.functional as F
from fairseq import options
from fairseq.criterions.adaptive_loss import AdaptiveLoss
from fairseq.models.ema.ema import EMA
from fairseq.modules import AdaptiveSoftmax, DynamicConv_scripatable
from fairseq.optim.lr_scheduler.polynomial_decay_schedule import PolynomialDecayLRSchedule
from fairseq.tasks import FairseqTask
from fairseq.trainer import Trainer

from ._replace import replace


def bf16_without_tpu() -> None:
    """Let `--bf16` and `--memory-efficient-bf16` mean bfloat16 on this machine's CPU or GPU.

    Without it: the command line takes --bf16 for a TPU and ends in AttributeError on `xla_device` (options.py:200).
    Where torch_xla is installed nothing changes. Goes when options.py sets `tpu` by `--tpu` alone.
    """
    if find_spec("torch_xla"):
        return

    def make(original: Callable[..., Any]) -> Callable[..., Any]:
        def parse_args_and_arch(*args: Any, **kwargs: Any) -> Any:
            parsed = original(*args, **kwargs)
            namespace = parsed[0] if isinstance(parsed, tuple) else parsed
            if getattr(namespace, "bf16", False):
                namespace.tpu = False
            return parsed

        return parse_args_and_arch

    replace(options, "parse_args_and_arch", make)


def ema_decays_once() -> None:
    """Move a shared weight's moving average once an update, however many names the weight has, and no whole numbers.

    Without it: `--store-ema` multiplies a tied weight by the decay once a name (models/ema/ema.py:148), so its average
    is wrong: at decay 0.9, after one update from 0 to 1, 0.19 instead of 0.10. A buffer of whole numbers ends the
    training in RuntimeError, for it cannot hold a product with the decay. Goes when EMA walks over parameters.
    """

    def make(original: Callable[..., Any]) -> Callable[..., Any]:
        def step(self: EMA, new_model: torch.nn.Module, updates: int | None = None) -> None:
            averages = self.fp32_params if self.config.ema_fp32 else self.model.state_dict()
            once = without_aliases(new_model.state_dict(), averages)
            original(self, types.SimpleNamespace(state_dict=lambda: once), updates)

        return step

    replace(EMA, "_step_internal", make)


def without_aliases(state: dict[str, Any], averages: dict[str, torch.Tensor]) -> dict[str, Any]:
    """The weights of `state`, without whole numbers, one for each distinct tensor of `averages`: of several names the
    first.
    """
    seen: set[tuple[Any, ...]] = set()
    kept = {}
    for name, value in state.items():
        average = averages.get(name)
        place = (name,) if average is None else (average.data_ptr(), average.shape, average.stride())
        if place not in seen and not (isinstance(value, torch.Tensor) and not value.is_floating_point()):
            kept[name] = value
        seen.add(place)
    return kept


def decay_follows_max_update() -> None:
    """Let `--lr-scheduler polynomial_decay` fall until `--max-update` where `--total-num-update` is left out.

    Without it: `Error merging override lr_scheduler.total_num_update=null`, since the parser makes None of the default
    `${optimization.max_update}` (dataclass/utils.py:187). Goes when it does not.
    """

    def make(original: Callable[..., Any]) -> Callable[..., Any]:
        def add_args(parser: argparse.ArgumentParser) -> None:
            original(parser)
            for action in parser._actions:
                if action.dest == "total_num_update" and action.default is None:
                    action.default = argparse.SUPPRESS

        return add_args

    replace(PolynomialDecayLRSchedule, "add_args", make)


def decay_needs_its_updates() -> None:
    """Say which flag --lr-scheduler polynomial_decay lacks, which presets such as word2vec's bring.

    Without it: AssertionError without a word (optim/lr_scheduler/polynomial_decay_schedule.py:46). Goes when fairseq
    says so.
    """

    def make(original: Callable[..., Any]) -> Callable[..., Any]:
        def __init__(self: Any, cfg: Any, optimizer: Any) -> None:
            if cfg.total_num_update <= 0:
                raise ValueError(
                    "--max-update: needs 1 or more with --lr-scheduler polynomial_decay, whose rate falls to its end "
                    f"in as many updates; got {cfg.total_num_update:g}. Use --max-update or --total-num-update, or "
                    "another --lr-scheduler."
                )
            original(self, cfg, optimizer)

        return __init__

    replace(PolynomialDecayLRSchedule, "__init__", make)


def tied_adaptive_width() -> None:
    """Give the adaptive softmax tied by `--tie-adaptive-weights` the width of the features that reach it.

    Without it: where `--decoder-embed-dim` differs from `--decoder-output-dim` training ends in a shape error at the
    first batch, since a tied model does not project its features to the latter (transformer_decoder.py:131, 144).
    The tied bands then do that themselves. Goes when the decoder passes `embed_dim` for a tied softmax.
    """

    def make(original: Callable[..., Any]) -> Callable[..., Any]:
        def __init__(
            self: Any,
            vocab_size: int,
            input_dim: int,
            cutoff: list[int],
            dropout: float,
            factor: float = 4.0,
            adaptive_inputs: Any = None,
            **kwargs: Any,
        ) -> None:
            width = input_dim if adaptive_inputs is None else adaptive_inputs.embedding_dim
            original(self, vocab_size, width, cutoff, dropout, factor, adaptive_inputs, **kwargs)

        return __init__

    replace(AdaptiveSoftmax, "__init__", make)


def adaptive_loss_counts_every_word() -> None:
    """Train and count the second word of each band of the adaptive softmax.

    Without it: `adaptive_loss` numbers a tail band's words from 0 and then passes over number 1, which it takes for
    padding (criterions/adaptive_loss.py:72). That word is never trained, and perplexities are too low.
    Goes when padding is sought in the head alone.
    """

    def make(_: Callable[..., Any]) -> Callable[..., Any]:
        def forward(
            self: AdaptiveLoss, model: Any, sample: dict[str, Any], reduce: bool = True
        ) -> tuple[torch.Tensor, int, dict[str, Any]]:
            softmax = getattr(model.decoder, "adaptive_softmax", None)
            if softmax is None:
                raise ValueError(
                    "--criterion adaptive_loss: needs a model with bands of words; got one without. "
                    "Use --adaptive-softmax-cutoff, or another criterion."
                )
            output = model(**sample["net_input"])
            target = model.get_targets(sample, output)
            scores, targets = softmax(output[0], target.flatten())
            loss = F.cross_entropy(scores[0], targets[0], ignore_index=self.padding_idx, reduction="none")
            tails = zip(scores[1:], targets[1:], strict=True)
            for cluster, (tail_scores, tail_target) in enumerate(tails, start=softmax.cutoff[0]):
                if tail_target is not None:
                    positions = targets[0].eq(cluster).nonzero().squeeze(1)
                    loss = loss.index_add(0, positions, F.cross_entropy(tail_scores, tail_target, reduction="none"))
            if reduce:
                loss = loss.sum().view(1)
            ntokens = int(target.ne(self.padding_idx).sum())
            sample_size = target.size(0) if self.sentence_avg else ntokens
            sizes = {"ntokens": ntokens, "nsentences": target.size(0), "sample_size": sample_size}
            return loss, sample_size, {"loss": loss.detach(), **sizes}

        return forward

    replace(AdaptiveLoss, "forward", make)


def dynamic_convolution_without_bias() -> None:
    """Leave DynamicConv's bias at 0 and out of training where there is none.

    Without it: `lightconv` with dynamic convolutions holds a parameter of whatever the memory held, NaN too, that no
    forward pass reads (modules/dynamic_convolution.py:383). It goes into checkpoints and their averages, and
    DistributedDataParallel stops at the second update, for it waits for its gradient. Goes when the bias is None there.
    """

    def make(original: Callable[..., Any]) -> Callable[..., Any]:
        def reset_parameters(self: Any) -> None:
            original(self)
            if not self.has_conv_bias:
                torch.nn.init.zeros_(self.conv_bias.requires_grad_(False))

        return reset_parameters

    replace(DynamicConv_scripatable, "reset_parameters", make)


def half_precision_needs_a_gpu() -> None:
    """Refuse to train in float16 without a GPU, before the first step.

    Without it: AssertionError that torch was not compiled with CUDA, whatever the machine (optim/fp16_optimizer.py:38).
    Goes when fairseq says what is missing.
    """

    def make(original: Callable[..., Any]) -> Callable[..., Any]:
        def build_optimizer(self: Trainer) -> None:
            if self.cfg.common.fp16 and not self.cuda and not self.tpu:
                raise ValueError("--fp16: needs a GPU for training; got a CPU. Use --bf16 or --amp.")
            original(self)

        return build_optimizer

    replace(Trainer, "_build_optimizer", make)


def models_check_their_training() -> None:
    """Ask a model that has ``check_training`` whether its options and the criterion make sense, before the first step.

    Without it: a criterion that fits the model's scores, but not what they mean, trains something else without a word.
    fairseq builds the two apart (fairseq_cli/train.py:112), and models for trainings as for everything else. Goes when
    a criterion gets the model it is for, and a model is told that it is to be trained.
    """

    def make(original: Callable[..., Any]) -> Callable[..., Any]:
        def build_optimizer(self: Trainer) -> None:
            if hasattr(self._model, "check_training"):
                self._model.check_training(self._criterion, self.cfg.model)
            original(self)

        return build_optimizer

    replace(Trainer, "_build_optimizer", make)


def reason_for_refusing_a_checkpoint() -> None:
    """Pass on what a model says of a checkpoint that it cannot load.

    Without it: "Cannot load model parameters; please ensure that the architectures match" for a dictionary of another
    size too (trainer.py:597). Goes when fairseq names the reason.
    """

    def make(original: Callable[..., Any]) -> Callable[..., Any]:
        def load_checkpoint(self: Trainer, *args: Any, **kwargs: Any) -> Any:
            try:
                return original(self, *args, **kwargs)
            except Exception as error:
                if isinstance(error.__context__, ValueError) and "Cannot load model parameters" in str(error):
                    raise error.__context__ from None
                raise

        return load_checkpoint

    replace(Trainer, "load_checkpoint", make)


def checkpoints_may_bring_shapes() -> None:
    """Let several processes wrap their model after the checkpoint that they go on from has been read.

    A head with classes from a file that is gone takes them from the checkpoint, and with them its parameters' shapes.
    Without it: the wrapper, made first, keeps places for gradients of the old shapes, and the first backward pass stops
    with "output with shape ... doesn't match" (trainer.py:253, 585). Goes when fairseq wraps the model afterwards.
    """

    def make(original: Callable[..., Any]) -> Callable[..., Any]:
        def load_checkpoint(self: Trainer, *args: Any, **kwargs: Any) -> Any:
            if self._wrapped_model is not None or self.is_fsdp:
                return original(self, *args, **kwargs)
            self._wrapped_model = self._model
            try:
                return original(self, *args, **kwargs)
            finally:
                self._wrapped_model = None  # made when it is next asked for

        return load_checkpoint

    replace(Trainer, "load_checkpoint", make)


def criterions_know_the_update() -> None:
    """Tell a criterion that has ``begin_update`` and ``begin_batch`` when an update begins, and which batch is a dummy.

    Without it: it sees batch after batch, whatever ``--update-freq`` is (trainer.py:797), and what it adds once an
    update is lost or there twice; of a dummy batch, which a process gets that has run out of data, the whole loss is
    multiplied by 0 (tasks/fairseq_task.py:531), what does not depend on the data too. An update that automatic mixed
    precision repeats begins anew. Goes when fairseq hands criterions the number of the batch.
    """

    def make_update(original: Callable[..., Any]) -> Callable[..., Any]:
        def train_step(self: Trainer, *args: Any, **kwargs: Any) -> Any:
            if hasattr(self._criterion, "begin_update"):
                self._criterion.begin_update(self.model)
            return original(self, *args, **kwargs)

        return train_step

    def make_batch(original: Callable[..., Any]) -> Callable[..., Any]:
        def train_step(
            self: Any,
            sample: Any,
            model: Any,
            criterion: Any,
            optimizer: Any,
            update_num: int,
            ignore_grad: bool = False,
        ) -> Any:
            if hasattr(criterion, "begin_batch"):
                criterion.begin_batch(is_dummy=ignore_grad)
                ignore_grad = False
            return original(self, sample, model, criterion, optimizer, update_num, ignore_grad)

        return train_step

    replace(Trainer, "train_step", make_update)
    replace(FairseqTask, "train_step", make_batch)
