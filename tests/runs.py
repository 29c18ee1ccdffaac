"""What fairseq's commands print and save, read back."""

import re
from pathlib import Path
from typing import Any

import torch
from fairseq.checkpoint_utils import load_checkpoint_to_cpu
from fairseq.data import data_utils


def printed(text: str, letter: str) -> dict[int, str]:
    """The lines `letter-number` of fairseq-generate by number; of several, the last."""
    return {int(number): line for number, line in re.findall(rf"^{letter}-(\d+)\t(.*)", text, re.M)}


def evaluated(text: str) -> tuple[int, float]:
    """Tokens and perplexity in the lines of fairseq-eval-lm."""
    [count], [perplexity] = re.findall(r"Evaluated ([\d,]+) tokens", text), re.findall(r"Perplexity: ([\d.]+)", text)
    return int(count.replace(",", "")), float(perplexity)


def tokens(data: Path, split: str) -> int:
    """Tokens of a split with their ends of sentence."""
    corpus = data_utils.load_indexed_dataset(f"{data}/{split}")  # which unmaps its sizes when it goes
    return int(corpus.sizes.sum())


def model_state(folder: Path) -> dict[str, torch.Tensor]:
    """The weights of the last checkpoint."""
    return load_checkpoint_to_cpu(folder / "checkpoint_last.pt")["model"]


def saved(folder: Path, name: str = "checkpoint_last.pt") -> dict[str, Any]:
    """A checkpoint's state of training: weights, their moving average, the optimiser, and where it stands."""
    state = load_checkpoint_to_cpu(folder / name)
    place = {"updates": state["optimizer_history"][-1]["num_updates"], **state["extra_state"]["train_iterator"]}
    weights = {"model": state["model"], "ema": state["extra_state"].get("ema")}
    return {"place": place, **weights, "optimizer": state["last_optimizer_state"]}


def assert_same(found: Any, expected: Any, place: str = "") -> None:
    """Equal bit for bit, whatever is nested in what."""
    assert type(found) is type(expected), place
    if isinstance(expected, dict):
        assert found.keys() == expected.keys(), place
        for key in expected:
            assert_same(found[key], expected[key], f"{place}.{key}")
    elif isinstance(expected, torch.Tensor):
        assert torch.equal(found, expected), place
    elif isinstance(expected, list | tuple):
        assert len(found) == len(expected), place
        for number, (one, other) in enumerate(zip(found, expected, strict=True)):
            assert_same(one, other, f"{place}[{number}]")
    else:
        assert found == expected, place


def assert_same_weights(found: Path, expected: Path) -> None:
    """Of the last checkpoints, bit for bit."""
    assert_same(model_state(found), model_state(expected))
