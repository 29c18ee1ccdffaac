"""What a model, criterion, optimizer or task may have beyond fairseq's own.

The trainer, tasks and criterions read these attributes. Each is optional: a class of fairseq's has none.
"""

from collections.abc import Callable, Sequence
from typing import Any, Protocol, cast

from fairseq import models

from ..checkpoints.meaning import Choice
from ..plan.settings import Family


class Extensions(Protocol):
    """The attributes, each with the value that stands for its absence."""

    # --- of a model's class ---
    computes_loss: bool = False
    """Whether ``forward(target=..., loss_options=...)`` returns an ``OutputLoss``, with an ``output`` layer."""

    predicts_centre: bool | None = None
    """Of word2vec: True for CBOW, False for skip-gram."""

    family: Family | None = None
    """Where the plan finds the model's settings."""

    turned_on: Sequence[str] = ()
    """Options that the preset turns on by its name."""

    meaning: Sequence[Choice] = ()
    """Options that change what trained weights mean but no shape; they are compared when weights are loaded."""

    recipe: dict[str, Any] = {}
    """Defaults of fairseq's options for the preset's training, by name, with "task", "criterion" and others."""

    recipe_yields: bool = False
    """Whether a command that names an optimizer drops the recipe."""

    # --- of a model ---
    check_training: Callable[[Any, Any], None] = lambda criterion, model: None
    """``check_training(criterion, cfg.model)``: raises ValueError before the first update for a training that would not
    be the one asked for."""

    carried_state: Callable[[], tuple[int, Any]] | None = None
    """Of a model that reads one stream of text: the position in it, and the recurrent state (L, B, K) there. It has
    ``restore_state(position, state)``, too."""

    set_sparse_gradients: Callable[..., None] = lambda sparse, rate=None: None
    """Of word2vec: whether tables get sparse gradients; the learning rate of an update without gradients, or None."""

    end_update: Callable[..., None] = lambda are_copies: None
    """``end_update(are_copies=...)``: called after the optimizer's step; whether that keeps the weights in float32."""

    # --- of a criterion ---
    takes_the_models_loss: bool = False
    """Whether it trains on the loss that the model computes, and not on the logits of all words."""

    begin_update: Callable[[Any], None] = lambda model: None
    """``begin_update(model)``: called before the batches of each update."""

    begin_batch: Callable[..., None] | None = None
    """``begin_batch(is_dummy=...)``: called before each training batch. fairseq multiplies the loss of a dummy batch,
    of a process without data, by 0; a criterion with this method does so itself."""

    # --- of an optimizer, a schedule, and a task ---
    takes_sparse_gradients: bool = False
    """Whether the optimizer takes sparse gradients."""

    end_epoch: Callable[[float, int], None] = lambda loss, updates: None
    """Of a learning rate's schedule: takes the validation loss at an epoch's end, before the checkpoint is written."""

    decay_of_average: Callable[[int], float] | None = None
    """Of a learning rate's schedule: the decay of ``--store-ema`` after so many updates."""

    word_counts: Any = None
    """The task's count of each word of its dictionary in the training text, (V,)."""

    gather_for_checkpoint: Callable[[bool], None] = lambda at_end: None
    """``gather_for_checkpoint(at_end)``: called in every process before one of them writes a checkpoint, with the
    task's part of it; whether the epoch has ended."""


def extensions_of(thing: Any) -> Extensions:
    """The attributes of a model, criterion, optimizer or task, or of its class, with the defaults for what it lacks."""
    return cast(Extensions, _WithDefaults(thing))


def model_class(options: Any) -> type | None:
    """The class of the model that the options of a model choose; None if it is not registered."""
    name = getattr(options, "_name", None) or getattr(options, "arch", None)
    return models.ARCH_MODEL_REGISTRY.get(name) or models.MODEL_REGISTRY.get(name)


class _WithDefaults:
    def __init__(self, thing: Any):
        self._thing = thing

    def __getattr__(self, name: str) -> Any:
        return getattr(self._thing, name, getattr(Extensions, name))
