"""Picks the last checkpoints of a training, and averages their weights."""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NoReturn

import torch
from torch import Tensor

from .dictionaries import fingerprints_of_training
from .meaning import differences_of_settings
from .reading import is_weight, read_checkpoint, require_finite, section_of

# What checkpoints are counted by, the names that fairseq-train gives them, and the flag that keeps several.
BY_EPOCH = "epoch", re.compile(r"checkpoint(\d+)\.pt"), "checkpointEPOCH.pt", "--keep-last-epochs"
BY_UPDATE = "update", re.compile(r"checkpoint_\d+_(\d+)\.pt"), "checkpoint_EPOCH_UPDATE.pt", "--keep-interval-updates"


def last_checkpoints(folder: Path, count: int, *, by_update: bool, upper_bound: int | None = None) -> list[Path]:
    """Returns the last `count` checkpoints of a `--save-dir`, the newest first; ValueError if it has too few.

    `by_update` takes checkpoint_EPOCH_UPDATE.pt, not checkpointEPOCH.pt; `upper_bound` is the last epoch, or update.
    """
    kind, pattern, example, keeps = BY_UPDATE if by_update else BY_EPOCH
    flag = f"--num-{kind}-checkpoints"
    if not folder.is_dir():
        raise ValueError(f"--inputs: needs one folder with {flag}; got {folder}. Use the folder of --save-dir.")
    numbered = {int(match[1]): path for path in folder.iterdir() if (match := pattern.fullmatch(path.name))}
    known = [number for number in sorted(numbered, reverse=True) if upper_bound is None or number <= upper_bound]
    if len(known) < count:
        limit = "" if upper_bound is None else f" up to {kind} {upper_bound}"
        use = f"a smaller number, or {keeps} in training"
        raise ValueError(f"{flag}: needs {count} files {example}{limit} in {folder}; got {len(known)}. Use {use}.")
    return [numbered[number] for number in known[:count]]


def average(paths: Sequence[Path]) -> dict[str, Any]:
    """Averages the models of several checkpoints; the rest of the result is the first checkpoint's.

        mean_p = (p_1 + ... + p_n) / n      in float32 (float64 where p is)

    Integer tensors are counters, taken from the first model. Entries that share storage in every model, as tied tables
    do, share storage in the mean. The optimizer's state and the average of `--store-ema` belong to other weights, and
    are left out.
    ValueError if a checkpoint cannot be read, has other entries, or its weights mean something else or are not finite.
    """
    first: dict[str, Any] = {}
    sums: dict[str, Tensor] = {}
    owners: dict[str, tuple[str, ...]] = {}
    for path in paths:
        state = read_checkpoint(path, flag="--inputs")
        model = state["model"]
        first = first or {key: value for key, value in state.items() if key != "last_optimizer_state"}
        _require_same_meaning(first, state, path)
        require_finite(model, str(path), flag="--inputs")
        _require_same_entries(first["model"], model, path)
        for key, owner in _owners(model).items():
            weight = model[key] if model[key].dtype == torch.float64 else model[key].float()
            sums[key] = sums[key].add_(weight) if key in sums else weight.clone()
            owners[key] = (*owners.get(key, ()), owner)
    means: dict[tuple[str, ...], Tensor] = {}
    for key, total in sums.items():
        means.setdefault(owners[key], total / len(paths))
    mean = {key: means[owners[key]] if key in sums else entry for key, entry in first["model"].items()}
    for name in ("ema", "ema_fp32_params"):
        (first.get("extra_state") or {}).pop(name, None)
    return {**first, "model": mean}


def _require_same_meaning(first: dict[str, Any], state: dict[str, Any], path: Path) -> None:
    for flag, old, new in differences_of_settings(section_of(first, "model"), section_of(state, "model")):
        _refuse("models whose weights mean the same", f"{flag} {old} in the first and {new} in {path}")
    first_words, words = (fingerprints_of_training(checkpoint.get("task_state")) for checkpoint in (first, state))
    for side in first_words.keys() & words.keys():
        if first_words[side] != words[side]:
            got = f"{path}, whose {side} dictionary differs from the first model's"
            _refuse("models trained with one dictionary", got)


def _require_same_entries(first: dict[str, Any], model: dict[str, Any], path: Path) -> None:
    for key in [*first, *model]:
        if key not in model or key not in first:
            which = "has it" if key in model else "lacks it"
            _refuse("models with the same entries", f"{key}: {path} {which}, unlike the first")
        first_shape, shape = _shape(first[key]), _shape(model[key])
        if shape != first_shape:
            _refuse("models of one size", f"{key} of {first_shape} in the first and {shape} in {path}")


def _refuse(needs: str, got: str) -> NoReturn:
    raise ValueError(f"--inputs: needs {needs}; got {got}. Use checkpoints of one training.")


def _shape(entry: Any) -> str:
    if not isinstance(entry, Tensor):
        return "no tensor"
    return f"shape {tuple(entry.shape)}" if is_weight(entry) else f"shape {tuple(entry.shape)} in whole numbers"


def _owners(model: dict[str, Any]) -> dict[str, str]:
    """Maps every weight's name to the name of the first weight with the same storage."""
    seen: dict[tuple[int, ...], str] = {}
    owners = {}
    for key, entry in model.items():
        if is_weight(entry):
            place = (entry.untyped_storage().data_ptr(), entry.storage_offset(), *entry.shape, *entry.stride())
            owners[key] = seen.setdefault(place, key) if entry.numel() else key
    return owners
