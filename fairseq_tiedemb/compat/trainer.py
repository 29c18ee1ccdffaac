"""Training: precision, averages, losses, learning rates."""

import argparse
from collections.abc import Sequence
from importlib.util import find_spec
from typing import Any
from unittest import mock

import torch
import torch.nn.functional as F
from fairseq import checkpoint_utils, options, utils
from fairseq.criterions.adaptive_loss import AdaptiveLoss
from fairseq.dataclass.utils import convert_namespace_to_omegaconf
from fairseq.models.ema.ema import EMA
from fairseq.models.fairseq_encoder import FairseqEncoder
from fairseq.modules import AdaptiveInput, AdaptiveSoftmax, CharacterTokenEmbedder, DynamicConv_scripatable
from fairseq.modules.unfold import unfold1d
from fairseq.nan_detector import NanDetector
from fairseq.optim.amp_optimizer import AMPOptimizer
from fairseq.optim.lr_scheduler.polynomial_decay_schedule import PolynomialDecayLRSchedule
from fairseq.trainer import Trainer
from omegaconf import open_dict
from torch import Tensor

from ..option_checks import flag_of
from ..wrapping import wrap
from .mending import mend, mend_now

State = dict[str, dict[str, Tensor | None]] | None  # fairseq's of a search


@mend(options, "parse_args_and_arch")
def bf16_without_tpu(original: Any, *args: Any, **kwargs: Any) -> Any:
    """Let `--bf16` and `--memory-efficient-bf16` use bfloat16 on this machine's CPU or GPU.

    Without it: the command line takes --bf16 for a TPU and ends in AttributeError on `xla_device` (options.py:200), or
    beside --fp16 in a message about --tpu. With torch_xla installed, nothing changes. Goes when --tpu alone sets `tpu`.
    """
    try:
        parsed = original(*args, **kwargs)
    except ValueError as error:
        if "Cannot combine --fp16 and --tpu" not in str(error) or find_spec("torch_xla"):
            raise
        raise ValueError("--fp16: needs neither --bf16 nor --tpu; got one of them. Use one precision.") from None
    namespace = parsed[0] if isinstance(parsed, tuple) else parsed
    if getattr(namespace, "bf16", False) and not find_spec("torch_xla"):
        namespace.tpu = False
    return parsed


@mend(AMPOptimizer, "clip_grad_norm")
def amp_unscales_once(original: Any, self: AMPOptimizer, *args: Any, **kwargs: Any) -> Any:
    """Divide the gradients of `--amp` by the loss scale once.

    Without it: the scaler divides those of torch's optimizer, and once more those of fairseq's around it
    (optim/amp_optimizer.py:49, 54): at a scale of 128 an update of SGD is 1/128. Goes when both name one optimizer.
    """
    with mock.patch.object(AMPOptimizer, "optimizer", self.fp32_optimizer):  # which the scaler steps
        return original(self, *args, **kwargs)


@mend(AMPOptimizer, "__init__")
def amp_follows_its_flags(original: Any, self: AMPOptimizer, cfg: Any, *args: Any, **kwargs: Any) -> None:
    """Follow `--amp-init-scale` and `--amp-scale-window`.

    Without it: the scale starts at `--fp16-init-scale`, and with a window doubles every `--amp-init-scale` updates
    (optim/amp_optimizer.py:23). Goes when they are read.
    """
    original(self, cfg, *args, **kwargs)
    window = cfg.common.amp_scale_window
    grown = {} if window is None else {"growth_interval": window}
    self._grad_scaler = torch.amp.GradScaler("cuda", init_scale=cfg.common.amp_init_scale, **grown)


@mend(AdaptiveInput, "forward")
@mend(CharacterTokenEmbedder, "forward")
def words_embedded_in_float32(original: Any, self: torch.nn.Module, *args: Any, **kwargs: Any) -> Any:
    """Embed words by adaptive bands or by their characters in float32 under `--amp`.

    Without it: RuntimeError at the first batch, since values in half precision are put into a tensor of float32
    (modules/adaptive_input.py:80, modules/character_token_embedder.py:149). Goes when fairseq casts them.
    """
    with torch.autocast(next(self.parameters()).device.type, enabled=False):
        return original(self, *args, **kwargs)


@mend(EMA, "_step_internal")
def ema_decays_once(_: Any, self: EMA, new_model: torch.nn.Module, updates: int | None = None) -> None:
    """Update the moving average of a shared weight once per update, whatever its number of names; skip integer buffers.

    Without it: `--store-ema` multiplies a tied weight by the decay once per name (models/ema/ema.py:148): at decay 0.9,
    after one update from 0 to 1, its average is 0.19 instead of 0.10. An integer buffer ends training in RuntimeError.
    Each update loads a state dict, which compares tied tables. Goes when EMA iterates over parameters.
    """
    weights = self.model.state_dict()
    averages = self.fp32_params if self.config.ema_fp32 else weights
    first: dict[tuple[Any, ...], str] = {}
    for name, value in new_model.state_dict().items():
        if not (isinstance(value, Tensor) and value.is_floating_point()) or "version" in name:
            continue
        known = first.setdefault((value.data_ptr(), value.shape, value.stride()), name)
        averages[name] = average = averages[known]  # in float32 each name of a table in bfloat16 had a copy
        if name == known:
            average.mul_(self.decay).add_(value.to(average.dtype), alpha=1 - self.decay)
            if weights[name].data_ptr() != average.data_ptr():
                weights[name].copy_(average)


@mend(Trainer, "_build_optimizer")
def numbers_of_a_training(original: Any, self: Trainer) -> None:
    """Refuse numbers by which nothing, or something else, would be trained.

    Without it: `--update-freq 0` ends in ZeroDivisionError, an empty list in IndexError; `--clip-norm -1`, or nan, does
    not clip; a negative `--max-epoch` trains nothing, a negative `--lr` away from the data; by `--ema-decay 2` an
    average leaves the weights; `--lr-scheduler polynomial_decay`, word2vec's, without a number of updates ends in an
    empty AssertionError, and with `--force-anneal` lowers a rate that is lowered already, to another one after a resume
    (optim/lr_scheduler/polynomial_decay_schedule.py:65). Goes when fairseq checks them.
    """
    for name, least in {"update_freq": 1, "clip_norm": 0, "max_epoch": 0, "max_update": 0, "lr": 0}.items():
        given = self.cfg.optimization[name]
        if isinstance(given, Sequence) and not given:
            raise ValueError(f"{flag_of(name)}: needs a number for each epoch; got an empty list. Use one for all.")
        for value in given if isinstance(given, Sequence) else [given]:
            if not value >= least:
                use = least or "a positive number"
                raise ValueError(f"{flag_of(name)}: needs {least} or more; got {value}. Use {use}.")
    if self.cfg.ema.store_ema and not 0 <= (decay := self.cfg.ema.ema_decay) <= 1:
        raise ValueError(f"--ema-decay: needs a number in [0, 1]; got {decay}. Use 0.9999, say.")
    if (updates := getattr(self.cfg.lr_scheduler, "total_num_update", 1)) <= 0:
        needs = "1 or more with --lr-scheduler polynomial_decay, which ends after that many updates"
        use = "--max-update or --total-num-update, or another --lr-scheduler"
        raise ValueError(f"--max-update: needs {needs}; got {updates:g}. Use {use}.")
    if getattr(self.cfg.lr_scheduler, "force_anneal", None) and self.cfg.lr_scheduler._name == "polynomial_decay":
        needs, got = "another --lr-scheduler than polynomial_decay", f"{self.cfg.lr_scheduler.force_anneal} with it"
        raise ValueError(f"--force-anneal: needs {needs}; got {got}. Use --lr-scheduler fixed, or leave it out.")
    original(self)


@mend(checkpoint_utils, "load_checkpoint")
def first_updates_are_made(original: Any, cfg: Any, trainer: Trainer, **kwargs: Any) -> Any:
    """Refuse a `--stop-min-lr` that ends a training before its first update.

    Without it: a warm-up begins with a rate of 0, and the command ends with status 0 and without a model
    (fairseq_cli/train.py:196). Goes when fairseq asks after an update.
    """
    loaded = original(cfg, trainer, **kwargs)
    least, rate = trainer.cfg.optimization.stop_min_lr, trainer.get_lr()
    if not trainer.get_num_updates() and rate is not None and rate <= least:
        needs = f"less than the first learning rate, {rate:g}"
        raise ValueError(f"--stop-min-lr: needs {needs}; got {least:g}. Use -1, which no rate reaches.")
    return loaded


@mend(PolynomialDecayLRSchedule, "get_next_lr")
def decay_begins_with_the_first_rate(original: Any, self: Any, epoch: int) -> float:
    """Let `--lr-scheduler polynomial_decay` take the first rate of a list in the first epoch.

    Without it: it takes the second (optim/lr_scheduler/polynomial_decay_schedule.py:62), and a list of two never has
    the first. Goes when it counts from 0, as `fixed` does.
    """
    return original(self, epoch - 1)


@mend(PolynomialDecayLRSchedule, "add_args")
def decay_follows_max_update(original: Any, parser: argparse.ArgumentParser) -> None:
    """Let `--lr-scheduler polynomial_decay` end at `--max-update` if `--total-num-update` is not given.

    Without it: `Error merging override lr_scheduler.total_num_update=null`, since the parser replaces the default
    `${optimization.max_update}` by None (dataclass/utils.py:187). Goes when it keeps the default.
    """
    original(parser)
    for action in parser._actions:
        if action.dest == "total_num_update" and action.default is None:
            action.default = argparse.SUPPRESS


@mend(AdaptiveSoftmax, "__init__")
def tied_adaptive_width(original: Any, self: Any, vocab_size: int, input_dim: int, *args: Any, **kwargs: Any) -> None:
    """Give the adaptive softmax tied by `--tie-adaptive-weights` the width of its input features.

    Without it: if `--decoder-embed-dim` differs from `--decoder-output-dim`, training ends in a shape error at the
    first batch, since a tied model does not project its features to the latter (transformer_decoder.py:131, 144). Here
    the bands project them. Goes when the decoder passes `embed_dim` for a tied softmax.
    """
    table = kwargs.get("adaptive_inputs")
    original(self, vocab_size, input_dim if table is None else table.embedding_dim, *args, **kwargs)


@mend(AdaptiveLoss, "forward")
def adaptive_loss_counts_every_word(
    _: Any, self: AdaptiveLoss, model: Any, sample: dict[str, Any], reduce: bool = True
) -> tuple[Tensor, int, dict[str, Any]]:
    """Train and count the second word of every band of the adaptive softmax.

    Without it: `adaptive_loss` numbers a tail band's words from 0 and ignores number 1 as padding
    (criterions/adaptive_loss.py:72): never trained, and perplexities are too low. Goes when only the head ignores it.
    """
    softmax = getattr(model.decoder, "adaptive_softmax", None)
    if softmax is None:
        needs, use = "a model with an adaptive softmax", "--adaptive-softmax-cutoff, or another criterion"
        raise ValueError(f"--criterion adaptive_loss: needs {needs}; got one without. Use {use}.")
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


def copied(_module: torch.nn.Module, _inputs: Any, log_probs: Tensor) -> Tensor:
    """A log-softmax's hook that copies: fairseq changes its output in place, and the gradient needs the original."""
    return log_probs.clone() if log_probs.requires_grad else log_probs


@mend(AdaptiveSoftmax, "__init__")
def adaptive_softmax_has_gradients(original: Any, self: Any, *args: Any, **kwargs: Any) -> None:
    """Let criterions that ask a model for all log-probabilities train an adaptive softmax.

    Without it: `--adaptive-softmax-cutoff` with `--criterion cross_entropy` ends in RuntimeError, since what the
    gradient needs has been modified in place (modules/adaptive_softmax.py:251). Goes when fairseq adds to a copy.
    """
    original(self, *args, **kwargs)
    self.lsm.register_forward_hook(copied)


@mend(DynamicConv_scripatable, "reset_parameters")
def dynamic_convolution_without_bias(original: Any, self: Any) -> None:
    """Set DynamicConv's unused bias to 0 and exclude it from training.

    Without it: `lightconv` with dynamic convolutions has an uninitialised parameter, possibly NaN, that no forward pass
    reads (modules/dynamic_convolution.py:383). It is saved and averaged with checkpoints, and DistributedDataParallel
    stops at the second update, waiting for its gradient. Goes when that bias is None.
    """
    original(self)
    if not self.has_conv_bias:
        torch.nn.init.zeros_(self.conv_bias.requires_grad_(False))


def convolve(self: Any, x: Tensor, incremental_state: State = None, query: Tensor | None = None) -> Tensor:
    """Does DynamicConv's `forward`; torch.jit.script takes it."""
    query = x if query is None else query
    words, width = x.size(0), self.kernel_size
    is_usual = self.weight_softmax and not self.in_proj and not self.renorm_padding
    if is_usual and incremental_state is None and words < width and self.padding_l == width - 1:
        filters = F.softmax(self.weight_linear(query).view(-1, width), dim=1)[:, width - words :]
        filters = self.weight_dropout_module(filters, inplace=False)
        windows = unfold1d(x, words, words - 1, 0.0).view(filters.size(0), -1, words)
        output = torch.bmm(windows, filters.unsqueeze(2)).view(x.size())
    else:
        output = self._forward_unfolded(x, incremental_state, query)
    return output + self.conv_bias if self.has_conv_bias else output


@mend_now
def filters_of_short_texts() -> None:
    """Give a decoder's dynamic convolution the same filters in batches of short texts as in others.

    Without it: in a batch whose texts are all shorter than the kernel each filter is cut before its softmax, not after
    (modules/dynamic_convolution.py:456). So scores depend on the batch, and the trained filters are not those of a
    search, nor those of `DynamicConv1dTBC`. Goes when the softmax comes first.
    """
    DynamicConv_scripatable.forward = convolve


@mend_now
def half_precision_needs_a_gpu() -> None:
    """Refuse `--fp16` and `--amp` without a GPU; `--fp16 --cpu` is a slow rehearsal of a training on a GPU.

    Without it: --fp16 ends in AssertionError that torch was not compiled with CUDA (optim/fp16_optimizer.py:38), at the
    latest in the first gradient that overflows (trainer.py:1023); --amp trains in float32 (tasks/fairseq_task.py:531),
    and so does `common.memory_efficient_bf16=true` alone in fairseq-hydra-train: only the command line sets both.
    Goes when fairseq names the missing GPU.
    """

    @wrap(Trainer, "__init__")
    def init(original: Any, self: Trainer, cfg: Any, *args: Any, **kwargs: Any) -> None:
        if isinstance(cfg, argparse.Namespace):
            cfg = convert_namespace_to_omegaconf(cfg)
        for kind in ("fp16", "bf16"):
            cfg.common[kind] |= cfg.common[f"memory_efficient_{kind}"]
        original(self, cfg, *args, **kwargs)

    @wrap(Trainer, "_build_optimizer")
    def build_optimizer(original: Any, self: Trainer) -> None:
        common = self.cfg.common
        if not self.cuda and not self.tpu:
            if common.amp or (common.fp16 and not common.cpu):
                flag, more = ("amp", "") if common.amp else ("fp16", ", or --fp16 --cpu for a slow rehearsal")
                raise ValueError(f"--{flag}: needs a GPU for training; got a CPU. Use --bf16{more}.")
            if common.fp16:
                with open_dict(self.cfg):
                    common.fp16_no_flatten_grads = True  # flat gradients are on a GPU
        try:
            original(self)
        except ValueError as error:
            if "Unsupported optimizer" not in str(error):
                raise
            kind = "bf16" if common.bf16 else "fp16"
            needs, got = "an optimizer that itself computes in float32, such as adam", self.cfg.optimizer._name
            raise ValueError(f"--memory-efficient-{kind}: needs {needs}; got {got}. Use --{kind}.") from None

    @wrap(Trainer, "train_step")
    def train_step(original: Any, self: Trainer, *args: Any, **kwargs: Any) -> Any:
        if self.cuda or not self.cfg.common.fp16:
            return original(self, *args, **kwargs)
        with mock.patch.object(Tensor, "cuda", lambda tensor: tensor):
            return original(self, *args, **kwargs)


@mend(NanDetector, "add_hooks")
def nan_is_found_in_decoders(original: Any, self: NanDetector, module: torch.nn.Module) -> None:
    """Say where a diverged Transformer first had NaN, without the gradients of its encoder's output.

    Without it: translation ends in StopIteration, since torch looks for a tensor in the encoder's dict, which has only
    lists (nan_detector.py:55), and nothing is said. Goes when fairseq hooks the tensors in them.
    """
    with mock.patch.object(self, "backward", self.backward and not isinstance(module, FairseqEncoder)):
        original(self, module)


@mend_now
def norm_of_all_gradients() -> None:
    """Take the norm of all gradients at once, on their device, where apex does not.

    Without it: with `--cpu` beside a GPU the first update ends in an error about two devices (utils.py:383); on a GPU
    each gradient's norm is a kernel of its own. Goes when fairseq does without apex.
    """

    def total_norm(grads: list[Tensor]) -> Tensor:
        norms = torch._foreach_norm(grads, 2, dtype=torch.float32)
        return torch.stack([norm.to(norms[0].device) for norm in norms]).norm()

    if not utils.multi_tensor_l2norm_available:
        utils.multi_tensor_l2norm_available, utils.multi_tensor_total_norm = True, total_norm
