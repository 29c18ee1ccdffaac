"""Ranges that options declare: the values within them, and the message for the others."""

import math
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from fairseq_tiedemb.option_checks import POSITIVE, PROBABILITY, OneOf, Range, check_ranges


@dataclass
class Options:
    """Of a part of the package."""

    embed_dim: int = field(default=100, metadata={"needs": POSITIVE})
    dropout: float = field(default=0.1, metadata={"help": "", "needs": PROBABILITY})
    init_range: float = field(
        default=0.1, metadata={"needs": Range("a positive, finite number", "0.1", above=0, below=math.inf)}
    )
    start: str | None = field(default=None, metadata={"needs": OneOf(("zero", "unigram"), "unigram")})
    free: int = 0


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"embed_dim": 1},
        {"dropout": 0},
        {"dropout": None},
        {"start": "zero"},
        {"free": -1},
        {"init_range": 1e9},
        {"dropout": np.float32(0.1), "embed_dim": np.int64(3)},
    ],
    ids=str,
)
def test_values_within(options: dict[str, Any]) -> None:
    check_ranges(Options, SimpleNamespace(**options))


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("embed_dim", 0, "--embed-dim: needs a positive whole number; got 0. Use 1 or more."),
        ("embed_dim", 1.5, "--embed-dim: needs a positive whole number; got 1.5. Use 1 or more."),
        ("embed_dim", True, "--embed-dim: needs a positive whole number; got True. Use 1 or more."),
        ("dropout", 1.0, r"--dropout: needs a probability in \[0, 1\); got 1.0. Use 0.3, say."),
        ("dropout", -0.1, r"--dropout: needs a probability in \[0, 1\); got -0.1"),
        ("dropout", math.nan, r"--dropout: needs a probability in \[0, 1\); got nan"),
        ("dropout", "much", r"--dropout: needs a probability in \[0, 1\); got much"),
        ("init_range", 0.0, "--init-range: needs a positive, finite number; got 0.0. Use 0.1."),
        ("init_range", math.inf, "--init-range: needs a positive, finite number; got inf"),
        ("start", "one", "--start: needs one of zero, unigram; got one. Use unigram."),
    ],
)
def test_values_outside_are_refused(name: str, value: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        check_ranges(Options, SimpleNamespace(**{name: value}))
