"""Distributed training and evaluation, also on CPUs."""

import gc
import os
import signal
import sys
import tempfile
from collections.abc import Callable
from typing import Any

import fairseq
import torch
import torch.distributed.nn  # before there is a group, which defaults of its functions would hold for ever
from fairseq import options, utils
from fairseq.distributed import utils as distributed_utils
from fairseq.models import distributed_fairseq_model
from fairseq.tasks import FairseqTask
from fairseq.trainer import Trainer

from ..wrapping import wrap
from .mending import mend, mend_now

FAIRSEQS_MAIN = distributed_utils.distributed_main


def started_by_torchrun() -> bool:
    """Whether torchrun, or a launcher that sets the same variables, started this process."""
    return all(name in os.environ for name in ("MASTER_ADDR", "MASTER_PORT", "WORLD_SIZE", "RANK"))


@mend(options, "add_distributed_training_args")
def processes_on_the_cpu(original: Any, parser: Any, default_world_size: int | None = None) -> Any:
    """Without a GPU, or with `--cpu` on the command line, use as many processes as torchrun started by default, or one.

    Without it: the default of `--distributed-world-size` is the number of GPUs, at least 1 (options.py:322). Without
    one every process of torchrun trains alone and writes the same checkpoints; beside eight, `--cpu` starts eight.
    Goes when the default reads WORLD_SIZE and `--cpu`.
    """
    if default_world_size is None and ("--cpu" in sys.argv or not torch.cuda.is_available()):
        default_world_size = int(os.environ["WORLD_SIZE"]) if started_by_torchrun() else 1
    return original(parser, default_world_size)


@mend(Trainer, "__init__")
def torchrun_trains_one_model(original: Any, self: Trainer, cfg: Any, *args: Any, **kwargs: Any) -> None:
    """Refuse to train a separate model in every process that torchrun started.

    Without it: fairseq-hydra-train, which counts processes before it imports a plugin, and `--distributed-world-size 1`
    train one model per process, and all write the same checkpoints. Goes when fairseq reads WORLD_SIZE.
    """
    processes = cfg.distributed_training.distributed_world_size
    if started_by_torchrun() and processes == 1 and int(os.environ["WORLD_SIZE"]) > 1:
        needs = f"{os.environ['WORLD_SIZE']}, the number that torchrun started (WORLD_SIZE)"
        use = "`torchrun ... -m fairseq_cli.train` without that flag, not fairseq-hydra-train"
        raise ValueError(f"--distributed-world-size: needs {needs}; got {processes}. Use {use}.")
    original(self, cfg, *args, **kwargs)


@mend(distributed_utils, "call_main")
def cpu_processes(original: Any, cfg: Any, main: Callable[..., Any], **kwargs: Any) -> None:
    """Run several processes without a GPU, started by hand, by torchrun, or by `--distributed-world-size 2` itself.

    Without it: fairseq counts GPUs. torchrun ends in ZeroDivisionError (distributed/utils.py:91), a world size of 2 in
    an AssertionError (158), or starts no process and exits with 0 (383). Every fairseq-train passes here, and is
    refused `--ddp-backend fully_sharded`. Goes when distributed/utils.py supports CPUs.
    """
    training = cfg.distributed_training
    # Before fairseq asks for fairscale, which had its last release in 2022: it gives a process only a part of a table.
    if training.ddp_backend == "fully_sharded":
        needs = "the whole of each shared table in every process"
        raise ValueError(f"--ddp-backend: needs {needs}; got fully_sharded. Use --ddp-backend pytorch_ddp.")
    on_cpu = (cfg.common.cpu or not torch.cuda.is_available()) and not cfg.common.tpu
    if not on_cpu or (training.distributed_world_size == 1 and training.distributed_init_method is None):
        original(cfg, main, **kwargs)
    elif choose_cpu_launch(training):
        original(cfg, main, **kwargs)
        leave_group()
    else:
        kwargs["start_rank"], training.distributed_rank = training.distributed_rank, None
        arguments = (torch.multiprocessing.get_start_method(), main, cfg, kwargs)
        port = training.distributed_port
        with tempfile.TemporaryDirectory() as folder:  # where they meet: a free port could be taken before they do
            training.distributed_init_method = f"tcp://localhost:{port}" if port > 0 else f"file://{folder}/store"
            torch.multiprocessing.spawn(cpu_process, arguments, nprocs=training.distributed_world_size)


def cpu_process(index: int, start_method: str, main: Callable[..., Any], cfg: Any, kwargs: dict[str, Any]) -> None:
    """Run one process of `--distributed-world-size` without GPUs.

    Unpickling this function in a new process imports the plugin first, which repairs fairseq there, too. Data workers
    have the first process's `start_method`, since `spawn` would repeat all imports.
    """
    torch.multiprocessing.set_start_method(start_method, force=True)
    distributed_utils.distributed_main(index, main, cfg, kwargs)
    leave_group()


def ending_with_the_first(index: int, main: Callable[..., Any], cfg: Any, kwargs: dict[str, Any]) -> None:
    """Run fairseq's `distributed_main`, in a process of its own or in that of torchrun."""
    if torch.multiprocessing.parent_process() is not None:
        torch.multiprocessing._prctl_pr_set_pdeathsig(signal.SIGTERM)  # type: ignore[attr-defined]
    FAIRSEQS_MAIN(index, main, cfg, kwargs)


@mend_now
def processes_end_with_the_first() -> None:
    """End the processes that fairseq starts with the one that started them, however it ends.

    Without it: torch sends them SIGINT, which background processes of a script ignore. They train on, hold the GPUs,
    and write over the checkpoints of the resumed training. Goes when torch sends another signal.
    """
    distributed_utils.distributed_main = ending_with_the_first  # by name, since it is sent to the new processes


def leave_group() -> None:
    """End gloo's threads; one that outlives Python and then frees a tensor aborts ("terminate called without ...")."""
    if torch.distributed.is_initialized():
        gc.collect()  # first the trainer, whose model would free its group with Python's lock, for which threads wait
        torch.distributed.destroy_process_group()
        vars(distributed_utils.get_global_group).clear()  # of which fairseq keeps its group


def choose_cpu_launch(training: Any) -> bool:
    """Fill in backend, address and rank for processes without GPUs, in the `distributed_training` section of a config.

    Returns whether all processes have been started, by torchrun or by hand (`--distributed-init-method`), and not here.
    """
    if training.distributed_backend == "nccl":
        training.distributed_backend = "gloo"
    if training.distributed_init_method is None and started_by_torchrun():
        training.distributed_init_method = "env://"
        training.distributed_world_size = int(os.environ["WORLD_SIZE"])
        training.distributed_rank = int(os.environ["RANK"])
    training.distributed_no_spawn |= training.distributed_init_method is not None
    return training.distributed_no_spawn


@mend(distributed_fairseq_model, "DistributedDataParallel")
def ddp_on_cpu(
    original: Any, module: torch.nn.Module, *, device_ids: Any, output_device: Any, **kwargs: Any
) -> torch.nn.Module:
    """Let `--ddp-backend c10d` and `pytorch_ddp`, the default, wrap a model on the CPU.

    Without it: ValueError, since fairseq always passes device_ids (models/distributed_fairseq_model.py:66). Goes when
    it passes none for a CPU.
    """
    if next(module.parameters()).device.type == "cpu":
        device_ids = output_device = None
        kwargs["gradient_as_bucket_view"] = True  # fairseq has it as a flag: sums are not copied back
    return original(module=module, device_ids=device_ids, output_device=output_device, **kwargs)


@mend(distributed_utils, "all_gather_list")
def gather_on_cpu(original: Any, data: Any, group: Any = None, max_size: int = 16384) -> list[Any]:
    """Gather the logs of several processes over gloo.

    Without it: `all_gather_list` needs CUDA tensors; on CPUs fairseq-validate with two processes fails
    (distributed/utils.py:620), as does every criterion whose logs cannot be summed. Goes when it checks the backend.
    """
    group = group or distributed_utils.get_global_group()
    if torch.distributed.get_backend(group) != "gloo":
        return original(data, group, max_size)
    gathered: list[Any] = [None] * distributed_utils.get_world_size(group)
    torch.distributed.all_gather_object(gathered, utils.move_to_cpu(data), group=group)
    return gathered


@mend_now
def empty_batches() -> None:
    """Let fairseq-validate skip the empty batches that give all processes the same number of batches.

    Without it: KeyError on `net_input` if the number of batches is not a multiple of the number of processes
    (fairseq_cli/validate.py:113; the trainer handles them). Goes when validate skips them, as generate does.
    """

    def valid_step(original: Any, self: Any, sample: Any, model: torch.nn.Module, criterion: Any, **kwargs: Any) -> Any:
        return original(self, sample, model, criterion, **kwargs) if sample else (torch.zeros(()), 0, {})

    for task in {FairseqTask, *fairseq.tasks.TASK_REGISTRY.values()}:
        if "valid_step" in vars(task):
            wrap(task, "valid_step")(valid_step)


@mend(distributed_utils, "_broadcast_object_slow")
def broadcast_objects(original: Any, obj: Any, src_rank: int, group: Any, dist_device: torch.device) -> Any:
    """Send resumed state to the other processes by torch's `broadcast_object_list`.

    Without it: torch >= 2.6 refuses to resume with several processes: receivers call `torch.load`
    (distributed/utils.py:805) on a config. The first process has checked the file. Goes when fairseq does this.
    """
    if distributed_utils.use_xla():
        return original(obj, src_rank, group, dist_device)
    box = [obj]
    torch.distributed.broadcast_object_list(box, src=src_rank, group=group, device=dist_device)
    return box[0]
