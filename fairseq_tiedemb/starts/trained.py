"""A trained model, models that differ from it in an option or a dictionary, and the checkpoint of a start."""

import copy
from argparse import Namespace
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from fairseq_tiedemb.checkpoints.reading import read_checkpoint
from fairseq_tiedemb.export.loading import load_model
from fairseq_tiedemb.export.settings import as_dict, settings_of
from fairseq_tiedemb.export.weights import require_weights

Weights = Mapping[str, Tensor]


class Trained(NamedTuple):
    """The model of a checkpoint, with all that its training saved.

    Attributes:
        path: the file.
        state: what the file holds.
        settings: of the training, by section, as they are in the file.
        model: the model.
        task: its task.
        options: options of the model, as attributes.
        of_task: options of the task, as attributes.
        seed: of the training.
    """

    path: Path
    state: dict[str, Any]
    settings: dict[str, Any]
    model: Any
    task: Any
    options: Namespace
    of_task: Any
    seed: int

    def built(self, task: Any = None, **changes: Any) -> Any:
        """Builds a model like this one, with the numbers that its training would start with.

        Args:
            task: with other dictionaries; None for the model's own.
            changes: other options of the model.

        Raises:
            ValueError: if the options do not fit one another, or the dictionaries.
        """
        options = {**vars(self.options), **changes}
        with torch.random.fork_rng():
            torch.manual_seed(self.seed)
            return (task or self.task).build_model(Namespace(**options))

    def start(self, new: Any, convert: Callable[[Weights], Weights], **changes: Any) -> dict[str, Any]:
        """Returns the checkpoint of another model, from which a training can start.

        It has neither the state of the optimiser nor the training's place in its data, which belong to the old model.

        Args:
            new: the other model, whose weights are replaced.
            convert: makes its weights of this model's; of the moving average of ``--store-ema``, too.
            changes: other options of the model.
        """
        extra = {"train_iterator": {"epoch": 1, "iterations_in_epoch": 0}}
        average = (self.state.get("extra_state") or {}).get("ema")
        if average is not None:
            old = copy.deepcopy(self.model)
            old.load_state_dict(average)
            extra["ema"] = copy.deepcopy(_loaded(new, convert(old.state_dict()), self.path))
        options = {**as_dict(self.settings["model"]), **changes}
        as_saved = Namespace(**options) if isinstance(self.settings["model"], Namespace) else options
        return {
            **{key: value for key, value in self.state.items() if key != "last_optimizer_state"},
            "args": None,
            "cfg": {**self.settings, "model": as_saved},
            "model": _loaded(new, convert(self.model.state_dict()), self.path),
            "extra_state": extra,
        }


def read_trained(path: Path, data: Path | None) -> Trained:
    """Reads a checkpoint, and builds its model.

    Args:
        path: the checkpoint.
        data: folder with the dictionaries of the training; None for the training's own.

    Raises:
        ValueError: if the checkpoint or a dictionary cannot be read, or they do not fit.
    """
    state = read_checkpoint(path, flag="CHECKPOINT")
    settings = settings_of(state, str(path))
    require_weights(state["model"], str(path))
    name = str(as_dict(settings["model"]).get("_name") or as_dict(settings["model"]).get("arch"))
    if name == "tied_word2vec":
        raise ValueError(f"CHECKPOINT: needs a model that fairseq-train can start from; got {name}. Use another.")
    model, task, config = load_model(path, settings, data)
    options = Namespace(**as_dict(config.model))
    seed = as_dict(settings.get("common") or {}).get("seed") or 1
    return Trained(path, state, settings, model, task, options, config.task, int(seed))


def _loaded(model: Any, weights: Weights, path: Path) -> dict[str, Tensor]:
    """Returns a model's state dict after loading all of its entries.

    Raises:
        ValueError: naming the first entry that is missing or of another shape.
    """
    for key, entry in model.state_dict().items():
        found = weights.get(key)
        if found is None or found.shape != entry.shape:
            got = "none" if found is None else f"{tuple(found.shape)}"
            raise ValueError(
                f"CHECKPOINT: needs {key} of shape {tuple(entry.shape)} for the new model; got {got} in {path}. Use a "
                "model whose tables alone depend on the words and on tying."
            )
    model.load_state_dict({key: weights[key] for key in model.state_dict()}, strict=True)
    return model.state_dict()
