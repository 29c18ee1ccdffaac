"""Everything that makes fairseq's commands run on today's Python, torch and numpy, and nothing else.

fairseq is archived, so what newer libraries broke in it, and the mistakes that lose data without a word, are mended
here from outside, when the plugin is imported. One function is one entry: its docstring says what breaks without it,
where in fairseq, and when it can go. An entry whose cause is absent does nothing, and `apply` may be called again.
To retire this file, delete entries until `apply` has nothing to do.
"""

import argparse
import ast
import contextlib
import functools
import inspect
import logging
import math
import operator
import os
import pickle
import re
import socket
import sys
import types
import warnings
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from typing import Any

import fairseq
import numpy as np
import torch
import torch.nn.functional as F
from fairseq import checkpoint_utils, options, utils
from fairseq.criterions.adaptive_loss import AdaptiveLoss
from fairseq.data import FairseqDataset, data_utils
from fairseq.distributed import utils as distributed_utils
from fairseq.file_io import PathManager
from fairseq.models import distributed_fairseq_model
from fairseq.models.ema.ema import EMA
from fairseq.modules import AdaptiveSoftmax, DynamicConv_scripatable
from fairseq.tasks import FairseqTask
from fairseq.tasks.language_modeling import LanguageModelingTask
from fairseq.trainer import Trainer


def replace(owner: Any, name: str, make: Callable[[Any], Callable[..., Any]]) -> None:
    """Set `owner.name` to `make(original)`, once: a second call finds its mark and does nothing.

    Args:
        owner: the module or class that fairseq looks the name up on.
        name: its attribute; a static method stays one.
        make: from the original to what takes its place. The original stays reachable as `__wrapped__`.
    """
    original = getattr(owner, name)
    if getattr(original, "_from_compat", False):
        return
    # updated=(): the original may be a class, whose __dict__ is not to be copied onto a function.
    replacement: Any = functools.update_wrapper(make(original), original, updated=())
    replacement._from_compat = True
    is_static = isinstance(inspect.getattr_static(owner, name), staticmethod)
    setattr(owner, name, staticmethod(replacement) if is_static else replacement)


# --- numpy -----------------------------------------------------------------------------------------------------------


def numpy_names() -> None:
    """Give numpy back `np.compat.long`, `np.float` and `np.int`.

    Without it: AttributeError in language models with `--sample-break-mode eos` (data/token_block_dataset.py:125),
    in bucketing (data/language_pair_dataset.py:292), in masking (data/data_utils.py:524, 1107) and in the CRF layer.
    Goes with fairseq's last use of them.
    """
    if not hasattr(np, "compat"):
        setattr(np, "compat", types.SimpleNamespace(long=int))  # noqa: B010 (mypy knows no np.compat)
    for name, builtin in (("float", float), ("int", int)):
        if not hasattr(np, name):
            setattr(np, name, builtin)


def numpy_percentile() -> None:
    """Translate `np.percentile(interpolation=...)` to `method=`, its name since numpy 1.22.

    Without it: TypeError from `--num-batch-buckets` with numpy 2.4 and later (data/data_utils.py:880).
    Goes when fairseq says `method`.
    """
    if "interpolation" in inspect.signature(np.percentile).parameters:
        return

    def make(original: Callable[..., Any]) -> Callable[..., Any]:
        def percentile(*args: Any, **kwargs: Any) -> Any:
            if "interpolation" in kwargs:
                kwargs["method"] = kwargs.pop("interpolation")
            return original(*args, **kwargs)

        return percentile

    replace(np, "percentile", make)


# --- checkpoints -----------------------------------------------------------------------------------------------------


def checkpoint_classes() -> None:
    """Tell torch which classes a fairseq checkpoint may hold: settings and numpy numbers, none of which run code.

    Without it: torch >= 2.6 refuses every fairseq checkpoint, in generate, interactive, eval-lm, validate, resume and
    finetune (checkpoint_utils.py:340). Goes when fairseq's checkpoints hold plain Python only.
    """
    numbers = "bool int8 int16 int32 int64 uint8 uint16 uint32 uint64 float16 float32 float64".split()
    dtypes = [type(np.dtype(number)) for number in numbers]
    # What pickle calls to make an array and a number: numpy 1 and 2 name their module differently, and files last.
    makers = {"_reconstruct": np.array(0).__reduce__()[0], "scalar": np.float64(0).__reduce__()[0]}
    numpy_functions: list[Any] = [
        (maker, f"numpy.{core}.multiarray.{name}") for name, maker in makers.items() for core in ("core", "_core")
    ]
    torch.serialization.add_safe_globals([argparse.Namespace, np.ndarray, np.dtype, *dtypes, *numpy_functions])


@contextlib.contextmanager
def weights_only() -> Iterator[None]:
    """Ignore TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD, old advice for fairseq, which would run what a checkpoint contains."""
    name = "TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD"
    saved = os.environ.pop(name, None)
    try:
        yield
    finally:
        if saved is not None:
            os.environ[name] = saved


def require_registered(state: dict[str, Any], path: str) -> None:
    """Refuse a checkpoint whose task or model nobody has registered; fairseq says `KeyError: '_name'` much later."""
    cfg = state.get("cfg")
    known = {
        "task": fairseq.tasks.TASK_REGISTRY,
        "model": {**fairseq.models.MODEL_REGISTRY, **fairseq.models.ARCH_MODEL_REGISTRY},
    }
    for kind, registry in known.items():
        section = getattr(cfg, kind, None)
        name = getattr(section, "_name", None)
        if name is not None and name not in registry:
            raise ValueError(
                f"{path}: needs a registered {kind}; got {name!r}, which no imported code defines. "
                "Use --user-dir with the folder that defines it (common.user_dir for fairseq-hydra-train)."
            )


def checkpoint_errors() -> None:
    """Load checkpoints with `weights_only` whatever the environment says, and say plainly why one is refused.

    Without it: torch's text advises loading the file without the check, which runs its code; a model of a plugin that
    was not imported ends in `KeyError: '_name'` (checkpoint_utils.py:340, 909). Goes when fairseq does the same.
    """

    def make(original: Callable[..., Any]) -> Callable[..., Any]:
        def load(path: str, *args: Any, **kwargs: Any) -> Any:
            try:
                with weights_only():
                    state = original(path, *args, **kwargs)
            except (pickle.UnpicklingError, EOFError, LookupError, RuntimeError) as error:
                raise ValueError(refusal(path, str(error))) from error
            require_registered(state, path)
            return state

        return load

    for name in ("load_checkpoint_to_cpu", "load_ema_from_checkpoint"):
        replace(checkpoint_utils, name, make)


def refusal(path: str, torch_error: str) -> str:
    """Why `path` is not loaded, from the text of torch's error."""
    found = re.search(r"GLOBAL (\S+)", torch_error) or re.search(r"WeightsUnpickler error:\s*(.*)", torch_error)
    if found is None:
        return (
            f"{path}: needs a whole checkpoint; got one that cannot be read ({torch_error[:200].strip()}). "
            "Use another one: this is no checkpoint, or a damaged one."
        )
    return (
        f"{path}: needs tensors, numbers, text and settings only; got {found[1]}, which could run code. "
        "Nothing of it was run. Use a checkpoint from a source you trust, saved without that object."
    )


OPERATORS: dict[type, Callable[..., Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.USub: operator.neg,
    ast.UAdd: operator.pos,
}
LONGEST_LIST = 10_000


def parse_literal(text: str) -> Any:
    """Read a setting such as `"[(512, 3)] * 20"` as a value: numbers, text, lists, dicts, + - * /, and nothing else.

    Takes the place of the built-in `eval` in fairseq's modules, so it keeps its TypeError for what is no text, which
    `utils.eval_bool` expects.

    Args:
        text: a Python expression without names, calls, attributes or comprehensions.

    Raises:
        ValueError: it is anything else, or would build a list of more than 10,000 entries. Nothing of it is run.
    """
    if not isinstance(text, str):
        raise TypeError(f"parse_literal: needs text; got {text!r}")
    try:
        return _value(ast.parse(text.strip(), mode="eval").body)
    except (ValueError, SyntaxError, TypeError, ArithmeticError, RecursionError, MemoryError) as error:
        raise ValueError(
            f"setting in a checkpoint or on the command line: needs numbers, text, lists or dicts; got {text!r} "
            f"({error}). Anything else could run code, so nothing of it was run. "
            'Use a literal such as "[(512, 3)] * 4", or a checkpoint from a source you trust.'
        ) from None


def _value(node: ast.expr) -> Any:
    """The value of one node of a parsed literal."""
    match node:
        case ast.Constant(value=value):
            return value
        case ast.List(elts=items):
            return [_value(item) for item in items]
        case ast.Tuple(elts=items):
            return tuple(_value(item) for item in items)
        case ast.Set(elts=items):
            return {_value(item) for item in items}
        case ast.Dict(keys=keys, values=values) if None not in keys:
            return {_value(key): _value(value) for key, value in zip(keys, values, strict=True) if key is not None}
        case ast.UnaryOp(op=op, operand=operand) if type(op) in OPERATORS:
            return OPERATORS[type(op)](_value(operand))
        case ast.BinOp(left=left, op=op, right=right) if type(op) in OPERATORS:
            return _combine(OPERATORS[type(op)], _value(left), _value(right))
    raise ValueError(f"{type(node).__name__} is not allowed")


def _combine(combine: Callable[..., Any], left: Any, right: Any) -> Any:
    """Apply + - * / to two values, without building a huge list or text from a short expression."""
    if combine is operator.mul:
        for many, times in ((left, right), (right, left)):
            if hasattr(many, "__len__") and len(many) * times > LONGEST_LIST:
                raise ValueError(f"more than {LONGEST_LIST:,} entries")
    return combine(left, right)


def literal_settings() -> None:
    """Put `parse_literal` in the place of `eval` in fairseq's modules, where settings of a checkpoint reach it.

    Without it: a checkpoint that passes `weights_only` still runs code through a text such as its
    `adaptive_softmax_cutoff` (utils.py:791-810, models/transformer_lm.py:283, models/fconv.py:123 and 30 more places),
    when it is loaded. A module's own global comes before the built-in, so one name a module covers every place, and the
    copies made by `from fairseq.utils import eval_str_list` too. Goes when fairseq calls `eval` no more.
    """
    for name, module in list(sys.modules.items()):
        if name.partition(".")[0] == "fairseq":
            module.__dict__["eval"] = parse_literal


def atomic_copies() -> None:
    """Write `checkpoint_last.pt` and `checkpoint_best.pt` aside, then rename.

    Without it: they are copied in place (checkpoint_utils.py:139, file_io.py:71), and a process killed meanwhile leaves
    half a file where the last good checkpoint was. Goes when PathManager.copy does this.
    """

    def make(original: Callable[..., Any]) -> Callable[..., Any]:
        def copy(src_path: str, dst_path: str, overwrite: bool = False) -> Any:
            if not overwrite or not PathManager.supports_rename(dst_path):
                return original(src_path, dst_path, overwrite)
            done = original(src_path, dst_path + ".tmp", overwrite=True)
            if done:
                PathManager.rename(dst_path + ".tmp", dst_path)
            return done

        return copy

    replace(PathManager, "copy", make)


# --- batches ---------------------------------------------------------------------------------------------------------


def last_batch() -> None:
    """Keep the sentences that are left over when the rest is no multiple of `--required-batch-size-multiple`.

    Without it: fairseq drops them, silently, in every split (data/data_utils.py:345): of 100 test sentences 96 are
    translated, a small validation set is empty, training never sees its longest batch. Goes when fairseq keeps them.
    """

    def make(original: Callable[..., Any]) -> Callable[..., Any]:
        def batch_by_size(indices: Any, *args: Any, **kwargs: Any) -> Any:
            if len(indices) == 0:
                return []
            batches = original(indices, *args, **kwargs)
            kept = sum(len(batch) for batch in batches)
            # Batches are consecutive pieces of the indices, so what is missing is their end.
            return batches if kept == len(indices) else [*batches, np.asarray(indices)[kept:]]

        return batch_by_size

    replace(data_utils, "batch_by_size", make)


def exact_batch_size() -> None:
    """Make batches of `--batch-size` rows, also where that is no multiple of `--required-batch-size-multiple` (8).

    Without it: `--batch-size 20` trains with 16 rows, silently (data/data_utils.py:345). The multiple becomes the
    greatest common divisor of the two: `--batch-size 20` gives 20 rows, and multiples of 4 where `--max-tokens` cuts; a
    batch size that is a multiple of 8, or none, changes nothing. Goes when fairseq rounds no batch size down.
    """

    def make(original: Callable[..., Any]) -> Callable[..., Any]:
        def batch_by_size(
            self: Any,
            indices: Any,
            max_tokens: int | None = None,
            max_sentences: int | None = None,
            required_batch_size_multiple: int = 1,
        ) -> Any:
            multiple = math.gcd(max_sentences or 0, required_batch_size_multiple)
            return original(self, indices, max_tokens, max_sentences, multiple)

        return batch_by_size

    replace(FairseqDataset, "batch_by_size", make)


def eval_lm_blocks() -> None:
    """Refuse `fairseq-eval-lm --tokens-per-sample` above what the model can read.

    Without it: fairseq drops every block that is too long (tasks/language_modeling.py:366), prints the perplexity of
    what is left, 7 tokens of a test set, and exits with 0. Sentences (`--sample-break-mode eos`) that are too long stay
    left out and counted, as in every command. Goes when eval-lm heeds `--skip-invalid-size-inputs-valid-test`.
    """

    def make(original: Callable[..., Any]) -> Callable[..., Any]:
        def eval_lm_dataloader(
            self: Any, dataset: Any, *args: Any, max_positions: Any = None, context_window: int = 0, **kwargs: Any
        ) -> Any:
            if isinstance(max_positions, int | float) and self.args.sample_break_mode != "eos":
                require_short_blocks(np.asarray(dataset.sizes) + context_window, max_positions)
            kwargs.update(max_positions=max_positions, context_window=context_window)
            return original(self, dataset, *args, **kwargs)

        return eval_lm_dataloader

    replace(LanguageModelingTask, "eval_lm_dataloader", make)


def require_short_blocks(sizes: np.ndarray, limit: float) -> None:
    """Raise if any block of a language model's data is longer than its model can read."""
    too_long = int((sizes > limit).sum())
    if too_long:
        raise ValueError(
            f"--tokens-per-sample: needs blocks of at most {limit:g} tokens, which is what the model was trained with; "
            f"got {too_long} of {len(sizes)} blocks above that, up to {sizes.max()} tokens, and would leave them out. "
            f"Use --tokens-per-sample {limit:g} --sample-break-mode none."
        )


# --- training --------------------------------------------------------------------------------------------------------


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
    """Move a shared weight's moving average once an update, however many names the weight has.

    Without it: `--store-ema` multiplies a tied weight by the decay once a name (models/ema/ema.py:148), so its average
    is wrong: at decay 0.9, after one update from 0 to 1, 0.19 instead of 0.10. Goes when EMA walks over tensors.
    """

    def make(original: Callable[..., Any]) -> Callable[..., Any]:
        def step(self: EMA, new_model: torch.nn.Module, updates: int | None = None) -> None:
            averages = self.fp32_params if self.config.ema_fp32 else self.model.state_dict()
            once = without_aliases(new_model.state_dict(), averages)
            original(self, types.SimpleNamespace(state_dict=lambda: once), updates)

        return step

    replace(EMA, "_step_internal", make)


def without_aliases(state: dict[str, Any], averages: dict[str, torch.Tensor]) -> dict[str, Any]:
    """The entries of `state`, one for each distinct tensor of `averages`: of several names the first."""
    seen: set[tuple[Any, ...]] = set()
    kept = {}
    for name, value in state.items():
        average = averages.get(name)
        place = (name,) if average is None else (average.data_ptr(), average.shape, average.stride())
        if place not in seen:
            kept[name] = value
        seen.add(place)
    return kept


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


# --- several processes -----------------------------------------------------------------------------------------------


def started_by_torchrun() -> bool:
    """Whether torchrun (or another launcher that sets the same variables) has started this process."""
    return all(name in os.environ for name in ("MASTER_ADDR", "MASTER_PORT", "WORLD_SIZE", "RANK"))


def torchrun_world_size() -> None:
    """Under torchrun without a GPU, train with as many processes as torchrun has started.

    Without it: the default of `--distributed-world-size` is the number of GPUs, at least 1 (options.py:322), and each
    process trains alone and writes the same checkpoints. Goes when the default reads WORLD_SIZE.
    """

    def make(original: Callable[..., Any]) -> Callable[..., Any]:
        def add_distributed_training_args(parser: Any, default_world_size: int | None = None) -> Any:
            if default_world_size is None and not torch.cuda.is_available() and started_by_torchrun():
                default_world_size = int(os.environ["WORLD_SIZE"])
            return original(parser, default_world_size)

        return add_distributed_training_args

    replace(options, "add_distributed_training_args", make)


def torchrun_trains_one_model() -> None:
    """Refuse to train alone in each of the processes that torchrun has started.

    Without it: fairseq-hydra-train, which looks at the processes before it imports a plugin, trains as many models as
    torchrun starts processes, and all write the same checkpoints; so does `--distributed-world-size 1`. Goes when
    fairseq reads WORLD_SIZE.
    """

    def make(original: Callable[..., Any]) -> Callable[..., Any]:
        def init(self: Trainer, cfg: Any, *args: Any, **kwargs: Any) -> None:
            processes = cfg.distributed_training.distributed_world_size
            if started_by_torchrun() and processes == 1 and int(os.environ["WORLD_SIZE"]) > 1:
                raise ValueError(
                    f"--distributed-world-size: needs {os.environ['WORLD_SIZE']}, the number that torchrun has started "
                    f"(WORLD_SIZE); got {processes}. Use `torchrun ... -m fairseq_cli.train` without that flag, not "
                    "fairseq-hydra-train."
                )
            original(self, cfg, *args, **kwargs)

        return init

    replace(Trainer, "__init__", make)


def cpu_processes() -> None:
    """Run several processes without a GPU: started by hand, by torchrun, or by `--distributed-world-size 2` itself.

    Without it: fairseq counts GPUs. torchrun ends in ZeroDivisionError (distributed/utils.py:91), a world size of 2 in
    an AssertionError (158), or starts no process at all and exits with 0 (383), and the default backend is nccl.
    Goes when distributed/utils.py knows CPUs. Since every training passes here, `--ddp-backend fully_sharded` is
    refused here too.
    """

    def make(original: Callable[..., Any]) -> Callable[..., Any]:
        def call_main(cfg: Any, main: Callable[..., Any], **kwargs: Any) -> None:
            training = cfg.distributed_training
            refuse_sharded_tables(training)
            on_cpu = (cfg.common.cpu or not torch.cuda.is_available()) and not cfg.common.tpu
            if not on_cpu or training.distributed_world_size == 1:
                original(cfg, main, **kwargs)
            elif choose_cpu_launch(training):
                original(cfg, main, **kwargs)
            else:
                kwargs["start_rank"], training.distributed_rank = training.distributed_rank, None
                arguments = (torch.multiprocessing.get_start_method(), main, cfg, kwargs)
                torch.multiprocessing.spawn(cpu_process, arguments, nprocs=training.distributed_world_size)

        return call_main

    replace(distributed_utils, "call_main", make)


def refuse_sharded_tables(training: Any) -> None:
    """Stops before anything is built; fairseq would ask for fairscale, which has had no release since 2022.

    Raises:
        ValueError: for `--ddp-backend fully_sharded`, which gives a process a part of each table only.
    """
    if training.ddp_backend == "fully_sharded":
        raise ValueError(
            "--ddp-backend: needs the whole of each shared table in every process; got fully_sharded. "
            "Use --ddp-backend pytorch_ddp."
        )


def cpu_process(index: int, start_method: str, main: Callable[..., Any], cfg: Any, kwargs: dict[str, Any]) -> None:
    """One of the processes of `--distributed-world-size` without GPUs.

    A new process imports this function, and with it the plugin, before anything else: fairseq is mended there too.

    Args:
        index: its number.
        start_method: how it is to start its data workers: as the first process would, not each with all imports anew.
        main, cfg, kwargs: as for fairseq's `distributed_main`.
    """
    torch.multiprocessing.set_start_method(start_method, force=True)
    distributed_utils.distributed_main(index, main, cfg, kwargs)


def choose_cpu_launch(training: Any) -> bool:
    """Fill in backend, address and rank for processes without GPUs; tell whether this process is one of them.

    Args:
        training: the `distributed_training` section of a config; it is changed.

    Returns:
        True if each process has been started already, by torchrun or by hand with `--distributed-init-method`;
        False if this one is to start them all.
    """
    if training.distributed_backend == "nccl":
        training.distributed_backend = "gloo"
    if training.distributed_init_method is not None:
        training.distributed_no_spawn = True
    elif started_by_torchrun():
        training.distributed_init_method = "env://"
        training.distributed_world_size = int(os.environ["WORLD_SIZE"])
        training.distributed_rank = int(os.environ["RANK"])
        training.distributed_no_spawn = True
    else:
        port = training.distributed_port if training.distributed_port > 0 else free_port()
        training.distributed_init_method = f"tcp://localhost:{port}"
    return training.distributed_no_spawn


def free_port() -> int:
    """A port of this machine that nobody listens on."""
    with socket.socket() as listener:
        listener.bind(("localhost", 0))
        return listener.getsockname()[1]


def ddp_on_cpu() -> None:
    """Let `--ddp-backend c10d` and `pytorch_ddp`, the default, wrap a model that is on the CPU.

    Without it: ValueError, since fairseq always passes device_ids (models/distributed_fairseq_model.py:66).
    Goes when it passes none for a CPU.
    """

    def make(original: Callable[..., Any]) -> Callable[..., Any]:
        def wrap(module: torch.nn.Module, *, device_ids: Any, output_device: Any, **kwargs: Any) -> torch.nn.Module:
            if next(module.parameters()).device.type == "cpu":
                device_ids = output_device = None
            return original(module=module, device_ids=device_ids, output_device=output_device, **kwargs)

        return wrap

    replace(distributed_fairseq_model, "DistributedDataParallel", make)


def gather_on_cpu() -> None:
    """Gather the logs of several processes over gloo.

    Without it: `all_gather_list` wants CUDA tensors, and two-process fairseq-validate fails on a CPU
    (distributed/utils.py:620), as does every criterion whose logs cannot be summed. Goes when it asks for the backend.
    """

    def make(original: Callable[..., Any]) -> Callable[..., Any]:
        def all_gather_list(data: Any, group: Any = None, max_size: int = 16384) -> list[Any]:
            group = group or distributed_utils.get_global_group()
            if torch.distributed.get_backend(group) != "gloo":
                return original(data, group, max_size)
            gathered: list[Any] = [None] * distributed_utils.get_world_size(group)
            torch.distributed.all_gather_object(gathered, utils.move_to_cpu(data), group=group)
            return gathered

        return all_gather_list

    replace(distributed_utils, "all_gather_list", make)


def empty_batches() -> None:
    """Let fairseq-validate pass over the empty batches that make several processes' shares equally long.

    Without it: KeyError on `net_input` when the number of batches is no multiple of the number of processes
    (fairseq_cli/validate.py:113; the trainer has its own way). Goes when validate skips them, as generate does.
    """

    def make(original: Callable[..., Any]) -> Callable[..., Any]:
        def valid_step(self: Any, sample: Any, model: torch.nn.Module, criterion: Any, **kwargs: Any) -> Any:
            return original(self, sample, model, criterion, **kwargs) if sample else (torch.zeros(()), 0, {})

        return valid_step

    for task in {FairseqTask, *fairseq.tasks.TASK_REGISTRY.values()}:
        if "valid_step" in vars(task):
            replace(task, "valid_step", make)


def broadcast_objects() -> None:
    """Send what resume reads to the other processes by torch's own `broadcast_object_list`.

    Without it: resume with several processes, with and without GPUs, is refused by torch >= 2.6: the receiving ones use
    `torch.load` (distributed/utils.py:805) for a config, which is no weights. It comes from the first process of the
    same run, which has checked the file; no file is read here. Goes when fairseq does this.
    """

    def make(original: Callable[..., Any]) -> Callable[..., Any]:
        def broadcast_object_slow(obj: Any, src_rank: int, group: Any, dist_device: torch.device) -> Any:
            if distributed_utils.use_xla():
                return original(obj, src_rank, group, dist_device)
            box = [obj]
            torch.distributed.broadcast_object_list(box, src=src_rank, group=group, device=dist_device)
            return box[0]

        return broadcast_object_slow

    replace(distributed_utils, "_broadcast_object_slow", make)


# --- noise -----------------------------------------------------------------------------------------------------------

NOISE = (
    r"hydra\.experimental\.\w+\(\) is no longer experimental",
    r"\s*The version_base parameter is not specified",
    r"In '.*': Usage of deprecated keyword in package header",
    r"\s*'\w+' is validated against ConfigStore schema",
    r"\s*The strict flag in the compose API is deprecated",
    r"'pin_memory' argument is set as true but no accelerator is found",
    r"`torch\.cuda\.amp\.autocast\(args\.\.\.\)` is deprecated",
    r"`broadcast_buffers` is deprecated",
    r"Support for mismatched key_padding_mask and attn_mask is deprecated",
)


def quiet_warnings() -> None:
    """Silence the warnings that fairseq's own code draws from hydra and torch, and that no user can act upon.

    Without it: every command writes some twenty lines to stderr before its first result. Two come while fairseq itself
    is imported, out of a plugin's reach: `Please install tensorboardX`, which installing it ends, and from torch 2.15
    one about `torch.jit.script`; so do hydra's four in fairseq-hydra-train, which imports a plugin when it has begun.
    The standard output of fairseq-generate has its results only.
    Goes line by line, as fairseq stops calling what is deprecated.
    """
    for message in NOISE:
        warnings.filterwarnings("ignore", message=message)
    # One of fairseq's speech models sets the whole process to DEBUG (models/wav2vec/wav2vec2_classification.py:25).
    if logging.getLogger().level == logging.DEBUG and os.environ.get("LOGLEVEL", "").upper() != "DEBUG":
        logging.getLogger().setLevel(logging.INFO)


ENTRIES = (
    numpy_names,
    numpy_percentile,
    checkpoint_classes,
    checkpoint_errors,
    literal_settings,
    atomic_copies,
    last_batch,
    exact_batch_size,
    eval_lm_blocks,
    bf16_without_tpu,
    ema_decays_once,
    tied_adaptive_width,
    adaptive_loss_counts_every_word,
    dynamic_convolution_without_bias,
    half_precision_needs_a_gpu,
    reason_for_refusing_a_checkpoint,
    torchrun_world_size,
    torchrun_trains_one_model,
    cpu_processes,
    ddp_on_cpu,
    gather_on_cpu,
    empty_batches,
    broadcast_objects,
    quiet_warnings,
)


def apply() -> None:
    """Mend fairseq in this process. The plugin's import calls it; calling it again changes nothing."""
    for entry in ENTRIES:
        entry()
