"""Loads a trained model, builds a variant with other options or dictionaries, and makes the variant's checkpoint."""

import copy
from argparse import Namespace
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from fairseq_tiedemb.checkpoints.reading import read_checkpoint
from fairseq_tiedemb.checkpoints.settings import as_dict
from fairseq_tiedemb.loading import checked_settings, load_model

Weights = Mapping[str, Tensor]


class Trained(NamedTuple):
    """The model of a checkpoint and its task."""

    path: Path
    state: dict[str, Any]  # what the file holds, with its settings by section as "cfg"
    model: Any
    task: Any
    config: Any  # the settings as fairseq reads them

    @property
    def options(self) -> dict[str, Any]:
        """The options of the model."""
        return as_dict(self.config.model)

    def used(self, option: str) -> Any:
        """An option's value; None for bands of fairseq's ``lstm``, a default that only their criterion makes."""
        in_bands = any(".adaptive_softmax." in key for key in self.model.state_dict())
        return self.options.get(option) if in_bands or option != "adaptive_softmax_cutoff" else None

    def built(self, task: Any, **changes: Any) -> Any:
        """Builds a model with other options or dictionaries, with the numbers that its training would start with.

        ValueError if there is no such model.
        """
        try:
            with torch.random.fork_rng():
                torch.manual_seed(self.config.common.seed)
                return task.build_model(Namespace(**{**self.options, **changes}))
        except ValueError as error:  # which speaks of training, and of options that nobody has given here
            got = f"{self.path}, which cannot ({error})"
            raise ValueError(f"CHECKPOINT: needs a model that can change so; got {got}. Use a new training.") from error

    def start(self, new: Any, convert: Callable[[Weights], Weights], **changes: Mapping[str, Any]) -> dict[str, Any]:
        """Returns the checkpoint of another model, from which a training can start.

        It has neither the optimiser's state nor the training's place in its data, which belong to the old model.
        `convert` makes the weights of the model `new`, which are replaced, of this model's, and of the moving average
        of ``--store-ema``, too; `changes` are other options, by section of the settings.
        """
        settings = dict(self.state["cfg"])
        for section, options in changes.items():
            merged = {**as_dict(settings[section]), **options}
            settings[section] = Namespace(**merged) if isinstance(settings[section], Namespace) else merged
        extra: dict[str, Any] = {"train_iterator": {"epoch": 1, "iterations_in_epoch": 0}}
        average = (self.state.get("extra_state") or {}).get("ema")
        if average is not None:
            old = copy.deepcopy(self.model)
            old.load_state_dict(average)
            extra["ema"] = copy.deepcopy(self._loaded(new, convert(old.state_dict())))
        kept = {key: value for key, value in self.state.items() if key != "last_optimizer_state"}
        weights = self._loaded(new, convert(self.model.state_dict()))
        return {**kept, "args": None, "cfg": settings, "model": weights, "extra_state": extra}

    def _loaded(self, model: Any, weights: Weights) -> dict[str, Any]:
        """Returns a model's state dict after loading; raises ValueError for an entry that is missing or misshaped."""
        for key, entry in model.state_dict().items():
            weight = weights.get(key)
            if weight is None or weight.shape != entry.shape:
                got = "none" if weight is None else f"{tuple(weight.shape)}"
                needs = f"{key} of shape {tuple(entry.shape)} for the new model"
                use = "a model whose tables alone depend on the words and on tying"
                raise ValueError(f"CHECKPOINT: needs {needs}; got {got} in {self.path}. Use {use}.")
        model.load_state_dict({key: weights[key] for key in model.state_dict()}, strict=True)
        return model.state_dict()


def read_trained(path: Path, data: Path | None) -> Trained:
    """Reads a checkpoint, and builds its model.

    `data` is the folder with the dictionaries of the training; None for the training's own. ValueError if one of the
    files cannot be read, or they do not fit.
    """
    state = read_checkpoint(path, flag="CHECKPOINT")
    settings = checked_settings(state, str(path))
    state["cfg"] = {**settings, **(state.get("cfg") or {})}  # with sections that are a Namespace as they are
    if settings["task"].get("_name") == "word_pairs":
        raise ValueError(f"CHECKPOINT: needs a model of text; got {path}, of --task word_pairs. Use a new training.")
    return Trained(path, state, *load_model(path, settings, data))
