"""Checkpoints of models that nothing has trained, as fairseq-train saves them, in a fraction of its time."""

from pathlib import Path
from typing import Any

import torch
from fairseq import options, tasks
from omegaconf import OmegaConf

from .conftest import configuration
from .models.common import grown


def write_checkpoint(path: Path, data: Path, *flags: object, std: float = 0.3) -> tuple[Any, Any]:
    """Writes what fairseq-train with these flags would save; returns the model and its task.

    Args:
        path: of the checkpoint.
        data: folder of fairseq-preprocess.
        flags: of fairseq-train.
        std: standard deviation of the weights.
    """
    cfg = configuration(options.get_training_parser(), data, *flags)
    task = tasks.setup_task(cfg.task)
    model = grown(task.build_model(cfg.model), std=std).eval()
    history = [{"criterion_name": "CrossEntropyCriterion", "lr_scheduler_state": {}, "num_updates": 0}]
    state = {
        "cfg": OmegaConf.to_container(cfg, resolve=True, enum_to_str=True),
        "args": None,
        "model": model.state_dict(),
        "task_state": task.state_dict(),
        "optimizer_history": history,
        "extra_state": {"train_iterator": {"epoch": 1, "iterations_in_epoch": 0}},
    }
    torch.save(state, path)
    return model, task
