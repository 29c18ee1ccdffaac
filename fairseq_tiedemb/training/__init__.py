"""What our models, criterions and tasks ask of fairseq's trainer and commands. Importing this package provides it.

`extensions` declares the attributes by which they ask. An entry of the other files is a function without arguments:

    recipes      presets set the defaults of a training      help         the flags and defaults of a preset
    fit          model, task and criterion fit each other    updates      begin of an update, dummy batches, gathering
    trained      weights keep the meaning of their training
    cpu          the library that multiplies on a CPU, and threads that spin
"""

from .. import compat as compat  # first: it mends fairseq
from . import cpu, fit, help, recipes, trained, updates

ENTRIES = (
    fit.models_fit_their_task,
    recipes.recipes_are_defaults,
    recipes.recipes_save_in_mid_epoch,
    help.model_help,
    trained.checked_resume,
    trained.checked_overrides,
    trained.dictionary_fingerprints,
    fit.models_check_their_training,
    updates.checkpoints_may_bring_shapes,
    updates.criterions_know_the_update,
    updates.models_know_the_update,
    updates.tasks_gather_before_saving,
    cpu.commands_choose_products,
    cpu.resumed_products,
)


def apply() -> None:
    """Apply all entries to fairseq in this process; calling it again changes nothing."""
    for entry in ENTRIES:
        entry()


apply()
