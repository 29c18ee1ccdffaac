"""A resumed training continues with the batches, and ends at the update, of an uninterrupted one."""

import logging
from pathlib import Path
from typing import Any

import torch
from fairseq import checkpoint_utils
from fairseq.data.iterators import EpochBatchIterator
from fairseq.optim.fp16_optimizer import _FP16OptimizerMixin, _MemoryEfficientFP16OptimizerMixin
from fairseq.trainer import Trainer

from .mending import mend

logger = logging.getLogger(__name__)


@mend(Trainer, "get_train_iterator")
def resumed_batches(original: Any, self: Trainer, epoch: int, *args: Any, **kwargs: Any) -> EpochBatchIterator:
    """Resume with the same batches as an uninterrupted training: those of its first epoch.

    Without it: fairseq makes batches once, seeded with the epoch in which the process started
    (tasks/fairseq_task.py:290). A training resumed in a later epoch therefore reads other batches; in mid-epoch, it
    skips sentences and repeats as many. Batches that every epoch makes anew (`--update-epoch-batch-itr`, data in
    several folders, datasets that change with the epoch) are not changed. Goes when all processes have one seed.
    """
    task, subset = self.task, self.cfg.dataset.train_subset
    if kwargs.get("load_dataset", True) and epoch > 1 and not kwargs.get("disable_iterator_cache"):
        batches = original(self, 1, *args, **kwargs)
        if task.dataset_to_epoch_iter.get(task.dataset(subset)) is batches and not callable(batches.batch_sampler):
            batches.epoch = epoch
            task.dataset(subset).set_epoch(epoch)
            return batches
        del task.datasets[subset]  # translation_multi_simple_epoch does not load one that it has
    return original(self, epoch, *args, **kwargs)


@mend(EpochBatchIterator, "_get_iterator_for_epoch")
def each_epochs_order(
    original: Any, self: EpochBatchIterator, epoch: int, shuffle: bool, fix_batches_to_gpus: bool = False, **kwargs: Any
) -> Any:
    """Shuffle the batches of an epoch by that epoch's setting, even if the data loader is kept over epochs.

    Without it: a kept loader (the default) keeps the first epoch's setting (data/iterators.py:499), so that
    `--curriculum 1` never shuffles. Goes when `_get_iterator_for_epoch` passes its arguments to the kept sampler.
    """
    if self.dataloader is not None:
        self.epoch_batch_sampler.shuffle = shuffle
        self.epoch_batch_sampler.fix_batches_to_gpus = fix_batches_to_gpus
    return original(self, epoch, shuffle, fix_batches_to_gpus=fix_batches_to_gpus, **kwargs)


@mend(_FP16OptimizerMixin, "state_dict")
@mend(_MemoryEfficientFP16OptimizerMixin, "state_dict")
def unrounded_weights_are_saved(original: Any, self: Any) -> dict[str, Any]:
    """Save, beside the optimizer's state, the float32 weights of `--fp16` and `--bf16`, and counts of overflows.

    Without it: a resumed training begins with weights that are rounded to half precision, and with no overflow behind
    it (optim/fp16_optimizer.py:80, 352). Goes when fairseq saves both.
    """
    state = {**original(self), "fp32_params": [weights.data for weights in float32_weights(self)]}
    if self.scaler:
        state["overflows"] = {name: value for name, value in vars(self.scaler).items() if name.startswith("_")}
    return state


@mend(_FP16OptimizerMixin, "load_state_dict")
@mend(_MemoryEfficientFP16OptimizerMixin, "load_state_dict")
def unrounded_weights_are_loaded(
    original: Any, self: Any, state_dict: dict[str, Any], optimizer_overrides: dict[str, Any] | None = None
) -> None:
    """Load what `unrounded_weights_are_saved` saves. A weight that its model has otherwise, of a changed file, stays.

    Without it: see there. Goes with it.
    """
    original(self, state_dict, optimizer_overrides)
    if self.scaler:
        vars(self.scaler).update(state_dict.get("overflows", {}))
    of_file = state_dict.get("fp32_params", ())
    if [kept.shape for kept in of_file] != [weights.shape for weights in float32_weights(self)]:
        return  # of another precision, or of another way to keep them
    for weights, kept in zip(float32_weights(self), of_file, strict=True):
        found = kept.to(weights.device)
        is_same = found.to(self.fp16_params[0].dtype).to(found.dtype) == weights.data
        weights.data.copy_(torch.where(is_same, found, weights.data))


def float32_weights(optimizer: Any) -> list[torch.nn.Parameter]:
    """The float32 weights that an optimizer of half precision has: none, of each parameter, or of all of a device."""
    weights = getattr(optimizer, "fp32_params", ())
    return list(weights.values() if isinstance(weights, dict) else weights)


@mend(checkpoint_utils, "load_checkpoint")
def finished_trainings_stay(original: Any, cfg: Any, trainer: Any, **kwargs: Any) -> Any:
    """Do not train further if the command of a finished training, with all its ``--max-update`` updates, is run again.

    Without it: fairseq checks for the last update only after an update (fairseq_cli/train.py:389), so that every run
    trains and saves one more, as with a reset flag, or a checkpoint from elsewhere. Goes when fairseq checks before.
    """
    loaded = original(cfg, trainer, **kwargs)
    limit = trainer.cfg.optimization.max_update or 0
    last = f"checkpoint_last{cfg.checkpoint_suffix}.pt"
    resets = cfg.reset_optimizer, cfg.reset_lr_scheduler, cfg.reset_meters, cfg.reset_dataloader
    own = cfg.restore_file == "checkpoint_last.pt" and Path(cfg.save_dir, last).exists() and not any(resets)
    if own and 0 < limit <= trainer.get_num_updates():
        logger.info(f"--max-update {limit}: reached in {cfg.save_dir}; a larger one continues the training")
        trainer.cfg.optimization.max_epoch = -1  # ends before the first epoch; 0 means no limit
    return loaded
