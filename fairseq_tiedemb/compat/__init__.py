"""Fixes that make fairseq's commands run on today's Python, torch and numpy. Importing this package applies them.

fairseq is archived. These functions repair what newer libraries broke in it, and its own errors that lose data
silently; what our models ask of fairseq's trainer is in `fairseq_tiedemb/training/`. An entry is a function; its
docstring says what breaks without it, where in fairseq, and when it can be removed. An entry whose cause is absent does
nothing, and `apply` may be called again. The files:

    arrays       numpy                     batches     sizes, leftover sentences
    checkpoints  safe reading              trainer     precision, averages, losses
    literals     settings, never code      processes   distributed training, also on CPUs
    saving       whole files or none       noise       warnings, repeated log lines
    text         UTF-8                     archives    unpacking of models
    resume       batches to come           user_dir    one copy of this package
    refusals     without a traceback       interactive soft alignment
    flags        that cannot be followed

.. include:: README.md
"""

from . import noise  # must be the first import, see its last line

# isort: split
from . import (
    archives,
    arrays,
    batches,
    checkpoints,
    flags,
    interactive,
    literals,
    processes,
    refusals,
    resume,
    saving,
    text,
    trainer,
    user_dir,
)

ENTRIES = (
    user_dir.one_copy_of_the_package,
    arrays.numpy_names,
    arrays.numpy_percentile,
    checkpoints.weights_only_by_default,
    checkpoints.checkpoint_classes,
    checkpoints.one_way_to_read,
    checkpoints.checkpoint_errors,
    checkpoints.shared_tables_beside_adaptive_softmax,
    archives.archives_stay_in_their_folder,
    interactive.interactive_alignment,
    literals.literal_settings,
    saving.whole_checkpoints,
    saving.atomic_copies,
    text.byte_order_marks,
    text.utf8_text,
    batches.data_folder,
    batches.last_batch,
    batches.exact_batch_size,
    batches.eval_lm_blocks,
    batches.eval_lm_words,
    batches.empty_split,
    batches.reading_ahead_ends,
    resume.resumed_batches,
    resume.each_epochs_order,
    resume.finished_trainings_stay,
    flags.validation_needs_no_task,
    flags.beams_have_hypotheses,
    flags.asynchronous_writing_needs_iopath,
    trainer.bf16_without_tpu,
    trainer.ema_decays_once,
    trainer.decay_follows_max_update,
    trainer.decay_needs_its_updates,
    trainer.tied_adaptive_width,
    trainer.adaptive_loss_counts_every_word,
    trainer.adaptive_softmax_has_gradients,
    trainer.dynamic_convolution_without_bias,
    trainer.half_precision_needs_a_gpu,
    trainer.reason_for_refusing_a_checkpoint,
    processes.torchrun_world_size,
    processes.torchrun_trains_one_model,
    processes.cpu_processes,
    processes.ddp_on_cpu,
    processes.gather_on_cpu,
    processes.empty_batches,
    processes.broadcast_objects,
    noise.lines_of_a_log_once,
    noise.quiet_warnings,
    refusals.refusals_end_in_their_message,
)


def apply() -> None:
    """Apply all entries to fairseq in this process; calling it again changes nothing."""
    for entry in ENTRIES:
        entry()


apply()
