"""Everything that makes fairseq's commands run on today's Python, torch and numpy, and nothing else.

fairseq is archived, so what newer libraries broke in it, and the mistakes that lose data without a word, are mended
here from outside, when the plugin is imported. One function is one entry: its docstring says what breaks without it,
where in fairseq, and when it can go. An entry whose cause is absent does nothing, and `apply` may be called again.
To retire this folder, delete entries until `apply` has nothing to do. Sections are files:

    arrays       numpy                     batches     sizes, and what is left over
    checkpoints  what a file may hold      training    precision, averages, losses
    literals     settings, never code      processes   several, without GPUs too
    saving       whole files or none       noise       warnings, repeated lines
    text         UTF-8                     commands    what they are given
    help         the flags of a model      archives    of models, unpacked
    resume       batches to come           trained     options, dictionaries
    refusals     without a traceback

How a checkpoint is read is no mend, and needs no fairseq: `fairseq_tiedemb/reading/`.

.. include:: README.md
"""

from . import noise as noise  # the first, see its last line
from .archives import archives_stay_in_their_folder
from .arrays import numpy_names, numpy_percentile
from .batches import empty_split, eval_lm_blocks, exact_batch_size, last_batch
from .checkpoints import checkpoint_classes, checkpoint_errors, one_way_to_read, weights_only_by_default
from .commands import data_folder, interactive_alignment, models_fit_their_task, recipes_are_defaults
from .help import model_help
from .literals import literal_settings
from .noise import lines_of_a_log_once, quiet_warnings
from .processes import (
    broadcast_objects,
    cpu_processes,
    ddp_on_cpu,
    empty_batches,
    gather_on_cpu,
    tasks_gather_before_saving,
    torchrun_trains_one_model,
    torchrun_world_size,
)
from .refusals import refusals_end_in_their_message
from .resume import each_epochs_order, finished_trainings_stay, resumed_batches
from .saving import atomic_copies, recipes_save_in_mid_epoch, whole_checkpoints
from .text import byte_order_marks, utf8_text
from .trained import checked_overrides, checked_resume, dictionary_fingerprints
from .training import (
    adaptive_loss_counts_every_word,
    bf16_without_tpu,
    checkpoints_may_bring_shapes,
    criterions_know_the_update,
    decay_follows_max_update,
    decay_needs_its_updates,
    dynamic_convolution_without_bias,
    ema_decays_once,
    half_precision_needs_a_gpu,
    models_check_their_training,
    reason_for_refusing_a_checkpoint,
    tied_adaptive_width,
)

ENTRIES = (
    numpy_names,
    numpy_percentile,
    weights_only_by_default,
    checkpoint_classes,
    one_way_to_read,
    checkpoint_errors,
    archives_stay_in_their_folder,
    literal_settings,
    whole_checkpoints,
    atomic_copies,
    recipes_save_in_mid_epoch,
    byte_order_marks,
    utf8_text,
    data_folder,
    models_fit_their_task,
    interactive_alignment,
    recipes_are_defaults,
    model_help,
    last_batch,
    exact_batch_size,
    eval_lm_blocks,
    empty_split,
    resumed_batches,
    each_epochs_order,
    finished_trainings_stay,
    checked_resume,
    checked_overrides,
    dictionary_fingerprints,
    bf16_without_tpu,
    ema_decays_once,
    decay_follows_max_update,
    decay_needs_its_updates,
    tied_adaptive_width,
    adaptive_loss_counts_every_word,
    dynamic_convolution_without_bias,
    half_precision_needs_a_gpu,
    models_check_their_training,
    reason_for_refusing_a_checkpoint,
    checkpoints_may_bring_shapes,
    criterions_know_the_update,
    torchrun_world_size,
    torchrun_trains_one_model,
    cpu_processes,
    ddp_on_cpu,
    gather_on_cpu,
    empty_batches,
    broadcast_objects,
    tasks_gather_before_saving,
    lines_of_a_log_once,
    quiet_warnings,
    refusals_end_in_their_message,
)


def apply() -> None:
    """Mend fairseq in this process. The plugin's import calls it; calling it again changes nothing."""
    for entry in ENTRIES:
        entry()


# Whoever imports one mend gets all: a new process is mended by unpickling `processes.cpu_process`.
from .. import plugin as plugin  # noqa: E402
