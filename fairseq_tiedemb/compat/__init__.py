"""Fixes that make fairseq's commands run on today's Python, torch and numpy.

fairseq is archived. When the plugin is imported, these functions repair what newer libraries broke in it, and fairseq's
own errors that lose data silently. An entry is a function; its docstring says what breaks without it, where in fairseq,
and when it can be removed. An entry whose cause is absent does nothing, and `apply` may be called again. The files:

    arrays       numpy                     batches     batch sizes, leftover sentences
    checkpoints  safe reading              training    precision, averages, losses
    literals     settings, never code      processes   distributed training, also on CPUs
    saving       whole files or none       noise       warnings, repeated log lines
    text         UTF-8                     commands    wrong input, recipes
    help         the flags of a model      archives    unpacking of models
    resume       batches to come           trained     options, dictionaries
    refusals     without a traceback       cpu         the library that multiplies, threads

Reading checkpoints needs no fairseq and is not a fix: see `fairseq_tiedemb/reading/`.

.. include:: README.md
"""

from . import noise as noise  # must be the first import, see its last line
from .archives import archives_stay_in_their_folder
from .arrays import numpy_names, numpy_percentile
from .batches import empty_split, eval_lm_blocks, eval_lm_words, exact_batch_size, last_batch, reading_ahead_ends
from .checkpoints import checkpoint_classes, checkpoint_errors, one_way_to_read, weights_only_by_default
from .commands import data_folder, interactive_alignment, models_fit_their_task, recipes_are_defaults
from .cpu import commands_choose_products, resumed_products
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
    eval_lm_words,
    empty_split,
    reading_ahead_ends,
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
    commands_choose_products,
    resumed_products,
)


def apply() -> None:
    """Apply all entries to fairseq in this process. The plugin's import calls it; calling it again changes nothing."""
    for entry in ENTRIES:
        entry()


# Importing one entry applies all: a spawned process imports only the module of `processes.cpu_process`.
from .. import plugin as plugin  # noqa: E402
