"""Updates and checkpoints as our criterions, tasks and output layers need them."""

from typing import Any
from unittest import mock

from fairseq import checkpoint_utils
from fairseq.tasks import FairseqTask
from fairseq.trainer import Trainer

from ..wrapping import wrap
from .extensions import extensions_of


@wrap(Trainer, "train_step")
def criterions_know_the_update(original: Any, self: Trainer, *args: Any, **kwargs: Any) -> Any:
    """Call a criterion's ``begin_update`` at every update, and its ``begin_batch`` at every batch.

    Without it: a criterion sees single batches, whatever ``--update-freq`` is (trainer.py:797), and would add a term
    per update never or several times. A dummy batch, for a process without data, multiplies the whole loss by 0
    (tasks/fairseq_task.py:531), including terms that do not depend on data. Automatic mixed precision may begin an
    update twice. Goes when fairseq numbers the batches.
    """
    extensions_of(self._criterion).begin_update(self.model)
    return original(self, *args, **kwargs)


@wrap(Trainer, "train_step")
def empty_batches_are_no_part(original: Any, self: Trainer, samples: list[Any], *args: Any, **kwargs: Any) -> Any:
    """Leave empty batches of an update out, unless all are; a single process leaves these, too.

    Without it: where the last of ``--update-freq`` batches is empty, as in the last update of an epoch of several
    processes, fairseq counts none of its words, but adds all their gradients (trainer.py:900). A single process takes
    the validation set's first batch for an empty one, and logs it. Goes when each is asked.
    """
    filled = [sample for sample in samples if sample]
    if not filled and self.data_parallel_world_size == 1:
        return None  # as after an overflow
    return original(self, filled or samples[:1], *args, **kwargs)


@wrap(Trainer, "valid_step")
def empty_batches_are_not_validated(original: Any, self: Trainer, sample: Any, *args: Any, **kwargs: Any) -> Any:
    """Leave empty batches out where one process validates; see `empty_batches_are_no_part`."""
    return original(self, sample, *args, **kwargs) if sample or self.data_parallel_world_size > 1 else None


@wrap(FairseqTask, "train_step")
def criterions_know_the_batch(
    original: Any,
    self: Any,
    sample: Any,
    model: Any,
    criterion: Any,
    optimizer: Any,
    update_num: int,
    ignore_grad: bool = False,
) -> Any:
    """Call the criterion's ``begin_batch``; see `criterions_know_the_update`."""
    begin_batch = extensions_of(criterion).begin_batch
    if begin_batch is not None:
        begin_batch(is_dummy=ignore_grad)
        ignore_grad = False
    return original(self, sample, model, criterion, optimizer, update_num, ignore_grad)


@wrap(FairseqTask, "optimizer_step")
def models_know_the_update(original: Any, self: Any, optimizer: Any, model: Any, update_num: int) -> None:
    """Call a model's ``end_update`` after the step of the optimizer; ``are_copies`` tells of weights in half precision.

    fairseq's FP16Optimizer copies these from float32. Goes when fairseq has such a hook.
    """
    original(self, optimizer, model, update_num)
    inner = getattr(optimizer, "_optimizer", None)  # of --use-bmuf
    extensions_of(model).end_update(are_copies=any(hasattr(wrapped, "fp32_params") for wrapped in (optimizer, inner)))


@wrap(Trainer, "train_step")
def schedules_set_the_average(original: Any, self: Trainer, *args: Any, **kwargs: Any) -> Any:
    """Let a schedule with ``decay_of_average`` set the decay of `--store-ema`.

    fairseq's EMA sets its own from two flags at each update. Goes when it asks the schedule.
    """
    decay_of = extensions_of(self.lr_scheduler).decay_of_average
    if decay_of is None:
        return original(self, *args, **kwargs)

    def set_decay(_: float) -> None:
        self.ema.decay = decay_of(self.get_num_updates())

    with mock.patch.object(self.ema, "_set_decay", set_decay):
        return original(self, *args, **kwargs)


@wrap(checkpoint_utils, "save_checkpoint")
def schedules_and_tasks_know_of_saving(
    original: Any, cfg: Any, trainer: Any, epoch_itr: Any, val_loss: float | None, *args: Any, **kwargs: Any
) -> Any:
    """Call a schedule's ``end_epoch`` and a task's `gather_for_checkpoint` before a checkpoint is written.

    Without it: fairseq tells a schedule the loss afterwards, and asks for a task's part in the writing process alone
    (checkpoint_utils.py:117), where `contiguous_lm` has the recurrent states of its own rows only. Goes when fairseq
    asks before `should_save_checkpoint_on_current_rank`.
    """
    at_end = epoch_itr.end_of_epoch()
    if val_loss is not None and at_end:
        sign = -1 if cfg.maximize_best_checkpoint_metric else 1
        extensions_of(trainer.lr_scheduler).end_epoch(sign * val_loss, trainer.get_num_updates())
    if not cfg.no_save:
        extensions_of(trainer.task).gather_for_checkpoint(at_end)
    return original(cfg, trainer, epoch_itr, val_loss, *args, **kwargs)


@wrap(Trainer, "load_checkpoint")
def checkpoints_may_bring_shapes(original: Any, self: Trainer, *args: Any, **kwargs: Any) -> Any:
    """Wrap the model for distributed training only after a checkpoint has been loaded.

    A head whose file of word classes is gone takes the classes, and with them parameter shapes, from the checkpoint.
    Without it: the wrapper is built first and keeps gradient buffers of the old shapes, and the first backward pass
    stops with "output with shape ... doesn't match" (trainer.py:253, 585). Goes when fairseq wraps it afterwards.
    """
    if self._wrapped_model is not None or self.is_fsdp:
        return original(self, *args, **kwargs)
    if not self.pipeline_model_parallel:
        self._model.to(self.device)  # as the wrapper does: the optimizer's state goes to the device of its parameters
    with mock.patch.object(self, "_wrapped_model", self._model):  # the trainer wraps the model at the next access
        return original(self, *args, **kwargs)
