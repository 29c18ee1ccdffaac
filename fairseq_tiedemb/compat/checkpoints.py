"""Checkpoints: what a file may hold, and why one is refused."""

import argparse
import contextlib
import os
import pickle
import re
from collections.abc import Callable, Iterator
from typing import Any

import fairseq
import numpy as np
import torch
from fairseq import checkpoint_utils

from ._replace import replace


def checkpoint_classes() -> None:
    """Tell torch which classes a fairseq checkpoint may hold: settings and numpy numbers, none of which run code.

    Without it: torch >= 2.6 refuses every fairseq checkpoint, in generate, interactive, eval-lm, validate, resume and
    finetune (checkpoint_utils.py:340). Goes when fairseq's checkpoints hold plain Python only.
    """
    numbers = "bool int8 int16 int32 int64 uint8 uint16 uint32 uint64 float16 float32 float64".split()
    dtypes = [type(np.dtype(number)) for number in numbers]
    # What pickle calls to make an array and a number: numpy 1 and 2 name their module differently, and files last.
    makers = {"_reconstruct": np.array(0).__reduce__()[0], "scalar": np.float64(0).__reduce__()[0]}
    numpy_functions: list[Any] = [
        (maker, f"numpy.{core}.multiarray.{name}") for name, maker in makers.items() for core in ("core", "_core")
    ]
    torch.serialization.add_safe_globals([argparse.Namespace, np.ndarray, np.dtype, *dtypes, *numpy_functions])


@contextlib.contextmanager
def weights_only() -> Iterator[None]:
    """Ignore TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD, old advice for fairseq, which would run what a checkpoint contains."""
    name = "TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD"
    saved = os.environ.pop(name, None)
    try:
        yield
    finally:
        if saved is not None:
            os.environ[name] = saved


def require_registered(state: dict[str, Any], path: str) -> None:
    """Refuse a checkpoint whose task or model nobody has registered; fairseq says `KeyError: '_name'` much later."""
    cfg = state.get("cfg")
    known = {
        "task": fairseq.tasks.TASK_REGISTRY,
        "model": {**fairseq.models.MODEL_REGISTRY, **fairseq.models.ARCH_MODEL_REGISTRY},
    }
    for kind, registry in known.items():
        section = getattr(cfg, kind, None)
        name = getattr(section, "_name", None)
        if name is not None and name not in registry:
            raise ValueError(
                f"{path}: needs a registered {kind}; got {name!r}, which no imported code defines. "
                "Use --user-dir with the folder that defines it (common.user_dir for fairseq-hydra-train)."
            )


def checkpoint_errors() -> None:
    """Load checkpoints with `weights_only` whatever the environment says, and say plainly why one is refused.

    Without it: torch's text advises loading the file without the check, which runs its code; a model of a plugin that
    was not imported ends in `KeyError: '_name'` (checkpoint_utils.py:340, 909). Goes when fairseq does the same.
    """

    def make(original: Callable[..., Any]) -> Callable[..., Any]:
        def load(path: str, *args: Any, **kwargs: Any) -> Any:
            try:
                with weights_only():
                    state = original(path, *args, **kwargs)
            except (pickle.UnpicklingError, EOFError, LookupError, RuntimeError) as error:
                raise ValueError(refusal(path, str(error))) from error
            require_registered(state, path)
            return state

        return load

    for name in ("load_checkpoint_to_cpu", "load_ema_from_checkpoint"):
        replace(checkpoint_utils, name, make)


def refusal(path: str, torch_error: str) -> str:
    """Why `path` is not loaded, from the text of torch's error."""
    found = re.search(r"GLOBAL (\S+)", torch_error) or re.search(r"WeightsUnpickler error:\s*(.*)", torch_error)
    if found is None:
        return (
            f"{path}: needs a whole checkpoint; got one that cannot be read ({torch_error[:200].strip()}). "
            "Use another one: this is no checkpoint, or a damaged one."
        )
    return (
        f"{path}: needs tensors, numbers, text and settings only; got {found[1]}, which could run code. "
        "Nothing of it was run. Use a checkpoint from a source you trust, saved without that object."
    )
