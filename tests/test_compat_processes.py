"""The entries of compat about several processes: where they are started, and what they share."""

import argparse
import pickle
import re
import signal
import sys
import types
from pathlib import Path
from typing import Any

import fairseq
import pytest
import torch
from fairseq import options
from fairseq.distributed import utils as distributed_utils
from fairseq.models import distributed_fairseq_model
from fairseq.tasks import FairseqTask
from fairseq.trainer import Trainer
from omegaconf import OmegaConf

from fairseq_tiedemb.compat import processes
from fairseq_tiedemb.training import updates
from fairseq_tiedemb.training.fit import models_check_their_training

from .processes import in_two_processes

TORCHRUN = {"MASTER_ADDR": "localhost", "MASTER_PORT": "29500", "WORLD_SIZE": "2", "RANK": "1"}


@pytest.fixture
def torchrun(monkeypatch: pytest.MonkeyPatch) -> None:
    """The variables that torchrun sets, and no GPU."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    for name, value in TORCHRUN.items():
        monkeypatch.setenv(name, value)


def training_section(**changes: Any) -> Any:
    """The `distributed_training` section of two processes."""
    defaults = {"distributed_backend": "nccl", "distributed_init_method": None, "distributed_port": -1}
    defaults |= {"ddp_backend": "pytorch_ddp"}
    defaults |= {"distributed_world_size": 2, "distributed_rank": 0, "distributed_no_spawn": False}
    return OmegaConf.create({**defaults, **changes})


@pytest.mark.usefixtures("torchrun")
def test_a_process_of_torchrun_knows_its_place() -> None:
    assert options.get_training_parser().parse_args([]).distributed_world_size == 2
    assert options.get_generation_parser().parse_args([]).distributed_world_size == 1
    section = training_section(distributed_world_size=4)
    assert processes.choose_cpu_launch(section)
    assert (section.distributed_init_method, section.distributed_backend) == ("env://", "gloo")
    assert (section.distributed_world_size, section.distributed_rank) == (2, 1)
    precision = {kind: False for each in ("fp16", "bf16") for kind in (each, f"memory_efficient_{each}")}
    section = training_section(distributed_world_size=1)
    alone = OmegaConf.create({"distributed_training": section, "common": precision})
    with pytest.raises(ValueError, match=r"--distributed-world-size: needs 2, .* got 1. Use `torchrun .* not fairseq"):
        Trainer(alone, None, None, None)


def test_sharded_tables_are_refused() -> None:
    cfg = OmegaConf.create({"distributed_training": training_section(ddp_backend="fully_sharded")})
    with pytest.raises(ValueError, match=r"--ddp-backend: needs the whole .* got fully_sharded. Use --ddp-backend py"):
        distributed_utils.call_main(cfg, pytest.fail)


def test_a_process_started_by_hand_keeps_its_place() -> None:
    section = training_section(distributed_init_method="tcp://localhost:1", distributed_rank=1)
    assert processes.choose_cpu_launch(section)
    assert (section.distributed_no_spawn, section.distributed_rank, section.distributed_backend) == (True, 1, "gloo")


STARTED = [(-1, r"file://(/.+)/store"), (12345, "tcp://localhost:12345()")]


@pytest.mark.parametrize(("port", "address", "launched"), [*((*each, "spawn") for each in STARTED), (-1, "()", "main")])
def test_two_cpu_processes_are_started(port: int, address: str, launched: str, monkeypatch: pytest.MonkeyPatch) -> None:
    calls, size = [], 2 if launched == "spawn" else 1
    monkeypatch.delenv("RANK", raising=False)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    section = training_section(distributed_port=port, distributed_world_size=size)
    cfg = OmegaConf.create({"common": {"cpu": False, "tpu": False}, "distributed_training": section})
    cfg.distributed_training.update(tpu=False, pipeline_model_parallel=False)

    def call(name: str, nprocs: int = 1) -> None:
        found = re.fullmatch(address, cfg.distributed_training.distributed_init_method or "")
        assert found
        assert not found[1] or Path(found[1]).is_dir()
        calls.append((name, nprocs, found[1]))

    monkeypatch.setattr(torch.multiprocessing, "spawn", lambda *_, nprocs: call("spawn", nprocs))
    distributed_utils.call_main(cfg, lambda _: call("main"))
    [(*started, folder)] = calls
    assert started == [launched, size]
    assert not folder or not Path(folder).exists()


def test_a_process_ends_without_threads_of_its_group(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of fairseq's group, too, which its models have."""

    def trains(*_: Any) -> None:
        torch.distributed.init_process_group("gloo", init_method=f"file://{tmp_path}/store", rank=0, world_size=1)
        group = distributed_utils.get_global_group()
        model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(1, 1), process_group=group)
        model(torch.ones(1, 1)).backward()
        vars(model)["trainer"] = model  # who has a trainer that has it
        assert len(threads() - before) >= 2

    def threads() -> set[str]:
        return {task.name for task in Path("/proc/self/task").iterdir()}

    before = threads()
    monkeypatch.setattr(distributed_utils, "distributed_main", trains)
    processes.cpu_process(0, torch.multiprocessing.get_start_method(), trains, None, {})
    assert threads() <= before


@pytest.mark.parametrize("is_started", [True, False])
def test_a_process_ends_with_the_one_that_started_it(is_started: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[Any] = []
    monkeypatch.setattr(torch.multiprocessing, "parent_process", lambda: "the first" if is_started else None)
    monkeypatch.setattr(torch.multiprocessing, "_prctl_pr_set_pdeathsig", calls.append)
    monkeypatch.setattr(processes, "FAIRSEQS_MAIN", lambda *arguments: calls.append(arguments))
    pickle.loads(pickle.dumps(distributed_utils.distributed_main))(1, None, None, {})
    assert calls == [*([signal.SIGTERM] if is_started else []), (1, None, None, {})]


@pytest.mark.parametrize(
    ("flags", "started", "expected"),
    [((), 0, 8), (("--cpu",), 0, 1), (("--cpu",), 2, 2), (("--cpu", "--distributed-world-size", "3"), 0, 3)],
)
def test_processes_on_the_cpu_beside_gpus(
    flags: tuple[str, ...], started: int, expected: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 8)
    monkeypatch.setattr(sys, "argv", ["fairseq-train", *flags])
    for name, value in (TORCHRUN if started else {}).items():
        monkeypatch.setenv(name, value)
    assert options.get_training_parser().parse_args(flags).distributed_world_size == expected
    assert options.get_generation_parser().parse_args(flags[:1]).distributed_world_size == 1


def test_two_cpu_processes_share_logs_objects_and_gradients(tmp_path: Path) -> None:
    in_two_processes(_share, tmp_path)


def _share(rank: int) -> None:
    assert distributed_utils.all_gather_list({"loss": torch.tensor(rank), "name": f"rank {rank}"}) == [
        {"loss": 0, "name": "rank 0"},
        {"loss": 1, "name": "rank 1"},
    ]
    state = {"cfg": OmegaConf.create({"lr": [0.1]}), "weight": torch.arange(3.0)} if rank == 0 else None
    received = distributed_utils.broadcast_object(state, 0, distributed_utils.get_global_group())
    assert (received["cfg"].lr, received["weight"].tolist()) == ([0.1], [0, 1, 2])
    settings = argparse.Namespace(ddp_backend="pytorch_ddp", ddp_comm_hook="none", device_id=0, bucket_cap_mb=25)
    for name in ("tpu", "broadcast_buffers", "find_unused_parameters", "gradient_as_bucket_view"):
        setattr(settings, name, False)
    model = torch.nn.Linear(1, 1, bias=False)
    group = distributed_utils.get_global_group()
    wrapped = distributed_fairseq_model.DistributedFairseqModel(settings, model, group, torch.device("cpu"))
    wrapped(torch.tensor([[float(rank)]])).sum().backward()
    assert model.weight.grad.item() == 0.5


def test_an_empty_batch_adds_nothing() -> None:
    criterion = types.SimpleNamespace(eval=lambda: None)
    for task in (FairseqTask, fairseq.tasks.TASK_REGISTRY["translation"]):
        loss, sample_size, logs = task.valid_step(None, {}, torch.nn.Linear(1, 1), criterion)
        assert (loss.item(), sample_size, logs) == (0, 0, {})


@pytest.mark.parametrize(
    ("backend", "world", "unused", "bands", "is_warned"),
    [
        ("pytorch_ddp", 2, False, True, True),
        ("legacy_ddp", 2, False, True, False),
        ("pytorch_ddp", 1, False, True, False),
        ("pytorch_ddp", 2, True, True, False),
        ("pytorch_ddp", 2, False, False, False),
    ],
)
def test_bands_need_a_wrapper_that_does_not_wait(
    backend: str, world: int, unused: bool, bands: bool, is_warned: bool, caplog: pytest.LogCaptureFixture
) -> None:
    ddp = types.SimpleNamespace(ddp_backend=backend, find_unused_parameters=unused)
    decoder = types.SimpleNamespace(adaptive_softmax=torch.nn.Linear(1, 1) if bands else None)
    trainer = types.SimpleNamespace(
        cfg=types.SimpleNamespace(distributed_training=ddp, model=None), use_distributed_wrapper=world > 1
    )
    trainer.data_parallel_world_size, trainer.is_data_parallel_master = world, True
    trainer._model, trainer._criterion, trainer._lr_scheduler = types.SimpleNamespace(decoder=decoder), None, None
    for trainer._optimizer in (None, object()):  # the trainer builds it again when it has loaded a checkpoint
        models_check_their_training(lambda _: None, trainer)
    assert caplog.text.count("Use --ddp-backend legacy_ddp") == is_warned


@pytest.mark.parametrize(
    ("world", "rows", "criterion", "is_first", "is_warned"),
    [
        (8, 20, "tied_cross_entropy", True, True),
        (1, 20, "tied_cross_entropy", True, False),
        (8, 3, "tied_cross_entropy", True, False),
        (8, 20, "word_pairs", True, False),
        (8, 20, "tied_cross_entropy", False, False),
    ],
)
def test_a_presets_batch_is_of_one_process(
    world: int, rows: int, criterion: str, is_first: bool, is_warned: bool, caplog: pytest.LogCaptureFixture
) -> None:
    ddp = types.SimpleNamespace(ddp_backend="legacy_ddp", find_unused_parameters=False)
    cfg = types.SimpleNamespace(distributed_training=ddp, model=None, dataset={"batch_size": rows, "max_tokens": None})
    trainer = types.SimpleNamespace(cfg=cfg, data_parallel_world_size=world, _criterion=None, _lr_scheduler=None)
    trainer.is_data_parallel_master, trainer._optimizer = is_first, None
    trainer._model = types.SimpleNamespace(recipe={"batch_size": 20, "criterion": criterion})
    models_check_their_training(lambda _: None, trainer)
    message = "--batch-size: the preset's learning rate needs 20 in all .* got 20 in each of 8. Use --batch-size 2, or"
    assert bool(re.search(message, caplog.text)) == bool(caplog.text) == is_warned


@pytest.mark.parametrize(
    ("optimizer", "are_copies"),
    [
        (types.SimpleNamespace(fp32_params=1), True),
        (types.SimpleNamespace(_optimizer=types.SimpleNamespace(fp32_params=1)), True),  # as --use-bmuf wraps it
        (types.SimpleNamespace(_optimizer=types.SimpleNamespace()), False),
    ],
)
def test_a_model_knows_that_its_weights_are_copies(
    optimizer: Any, are_copies: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[bool] = []
    extensions = types.SimpleNamespace(end_update=lambda are_copies: told.append(are_copies))
    monkeypatch.setattr(updates, "extensions_of", lambda _: extensions)
    updates.models_know_the_update(lambda *_: None, None, optimizer, None, 1)
    assert told == [are_copies]


@pytest.mark.parametrize(("pipeline", "device"), [(False, "meta"), (True, "cpu")])
def test_a_checkpoint_is_loaded_into_a_model_on_its_device(pipeline: bool, device: str) -> None:
    """fairseq's wrapper moves the model, and `checkpoints_may_bring_shapes` lets it do so after the checkpoint only."""
    model = torch.nn.Linear(1, 1)
    trainer = types.SimpleNamespace(_wrapped_model=None, _model=model, is_fsdp=False, device=torch.device("meta"))
    trainer.pipeline_model_parallel = pipeline
    found = updates.checkpoints_may_bring_shapes(lambda self: (self._wrapped_model, model.weight.device.type), trainer)
    assert found == (model, device)
    assert trainer._wrapped_model is None
