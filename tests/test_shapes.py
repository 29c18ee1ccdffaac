"""What Python hands to tables and losses: what does not fit is named, and nothing broadcasts silently."""

from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from fairseq_tiedemb import LossOptions, OutputLayer, SharedEmbedding, output_loss
from fairseq_tiedemb.constants import Constants

WORDS, WIDTH = 5, 4
TARGET = torch.tensor([0, 1, 2])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"num_embeddings": 0}, "num_embeddings: needs a positive whole number; got 0"),
        ({"num_embeddings": 5.0}, "num_embeddings: needs a positive whole number; got 5.0"),
        ({"embedding_dim": 0, "method": "cosine"}, "embedding_dim: needs a positive whole number; got 0"),
        ({"padding_idx": 5}, "padding_idx: needs one of 5 rows; got 5"),
        ({"padding_idx": -6}, "padding_idx: needs one of 5 rows; got -6"),
        ({"padding_idx": "1"}, "padding_idx: needs one of 5 rows; got '1'"),
        ({"weight": nn.Parameter(torch.ones(4, 5))}, r"weight: needs shape \(5, 4\).*; got \(4, 5\)"),
        ({"weight": torch.ones(5, 4)}, "weight: needs an nn.Parameter.*; got a Tensor of torch.float32"),
        (
            {"weight": nn.Parameter(torch.ones(5, 4, dtype=torch.long), requires_grad=False)},
            "weight: needs an nn.Parameter of floating-point numbers; got a Parameter of torch.int64",
        ),
    ],
)
def test_tables_that_cannot_be(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        SharedEmbedding(**{"num_embeddings": WORDS, "embedding_dim": WIDTH, "padding_idx": 1, **arguments})


def test_sizes_may_be_numpys_numbers() -> None:
    table = SharedEmbedding(np.int64(WORDS), np.int32(WIDTH), np.int64(1))
    assert table.scores(torch.ones(3, WIDTH)).shape == (3, WORDS)


@pytest.mark.parametrize(
    ("constants", "message"),
    [
        ({"logit_soft_cap": 0}, "--logit-soft-cap: needs a positive, finite number; got 0. Use 30, say"),
        ({"logit_scale": -1.0}, "--logit-scale: needs a positive, finite number; got -1.0. Use 1 for none"),
        ({"embedding_scale": float("inf")}, "--embedding-scale: needs a positive, finite number; got inf"),
        ({"input_gradient_scale": -1}, "--input-gradient-scale: needs a finite number of 0 or more; got -1. Use 1"),
    ],
)
def test_constants_that_cannot_be(constants: dict[str, Any], message: str) -> None:
    """A soft cap of 0 gave scores of nan."""
    with pytest.raises(ValueError, match=message):
        Constants(**constants)


def test_padding_counts_from_the_end_as_in_torch() -> None:
    table = SharedEmbedding(WORDS, WIDTH, -1, method="l2-input")
    assert table.padding_idx == WORDS - 1
    assert table.squared_norms()[-1] == 1.0


@pytest.mark.parametrize("shape", [(3, 5), (4, 8), (2, 3, 8), (8, 2), ()])
@pytest.mark.parametrize("method", ["plain", "distance"])
def test_scores_of_features_of_another_width(method: str, shape: tuple[int, ...]) -> None:
    """Twice the width would otherwise give twice the scores, of half a feature each."""
    table = SharedEmbedding(WORDS, WIDTH, 1, method=method)
    with pytest.raises(ValueError, match=r"features: needs shape \(\*, 4\).*; got \(" + ", ".join(map(str, shape))):
        table.scores(torch.ones(shape))


def test_a_projection_of_another_width_is_found_when_it_scores() -> None:
    layer = OutputLayer(SharedEmbedding(WORDS, WIDTH, 1), projection=nn.Linear(WIDTH, 8))
    with pytest.raises(ValueError, match=r"features: needs shape \(\*, 4\).*got \(3, 8\)"):
        layer(torch.ones(3, WIDTH))


@pytest.mark.parametrize("shape", [(0,), (0, 3), (2, 0)])
@pytest.mark.parametrize("method", ["plain", "distance"])
def test_scores_of_nothing(method: str, shape: tuple[int, ...]) -> None:
    table = SharedEmbedding(WORDS, WIDTH, 1, method=method)
    assert OutputLayer(table)(torch.ones(*shape, WIDTH)).shape == (*shape, WORDS)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"table_VD": torch.ones(WIDTH)}, r"table: needs shape \(V, D\).*; got \(4,\)"),
        ({"table_VD": torch.ones(9, WIDTH).long()}, r"table: needs .* of floats; got \(9, 4\) of torch.int64"),
        ({"table_VD": torch.ones(0, WIDTH)}, r"table: needs shape \(V, D\).*; got \(0, 4\)"),
        ({"features_ND": torch.ones(3, 5)}, r"features: needs shape \(\*, 4\).*; got \(3, 5\)"),
        ({"features_ND": torch.ones(3, 1, WIDTH)}, r"features: needs shape \(N, D\), .*; got \(3, 1, 4\)"),
        ({"target_N": TARGET[:2]}, r"target: needs shape \(3,\).*; got \(2,\)"),
        ({"target_N": TARGET.view(3, 1)}, r"target: needs shape \(3,\).*; got \(3, 1\)"),
        ({"target_N": TARGET.float()}, "target: needs token indices.*; got torch.float32"),
        ({"target_N": torch.tensor([0, 1, 5])}, r"target: needs tokens in \[0, 5\); got 5"),
        ({"target_N": torch.tensor([0, 1, -100])}, r"target: needs tokens in \[0, 5\); got -100"),
        ({"scale": torch.ones(1)}, r"scale: needs shape \(5,\).*; got \(1,\)"),
        ({"scale": torch.ones(3, WORDS)}, r"scale: needs shape \(5,\).*; got \(3, 5\)"),
        ({"scale": 2.0}, r"scale: needs shape \(5,\).*; got 2.0"),
        ({"offset": torch.ones(3, WORDS)}, r"offset: needs shape \(5,\).*; got \(3, 5\)"),
        ({"log_prior_NK": torch.zeros(2, 2)}, r"log_prior: needs shape \(3, K\); got \(2, 2\)"),
        ({"log_prior_NK": torch.zeros(3)}, r"log_prior: needs shape \(3, K\); got \(3,\)"),
        (
            {"log_prior_NK": torch.zeros(3, 1), "options": LossOptions(z_loss=0.5)},
            r"--z-loss: needs 0 with a mixture \(log_prior_NK\); got 0.5",
        ),
        ({"similar_ND": torch.ones(1, WIDTH)}, r"similar: needs the features' shape \(3, 4\); got \(1, 4\)"),
        ({"soft_cap": 0.0}, "soft_cap: needs a positive, finite number; got 0.0. Use None"),
        ({"soft_cap": float("inf")}, "soft_cap: needs a positive, finite number; got inf. Use None"),
        ({"bias": torch.ones(4)}, r"bias: needs shape \(5,\).*; got \(4,\)"),
    ],
)
def test_losses_that_cannot_be(arguments: dict[str, Any], message: str) -> None:
    given = {"features_ND": torch.ones(3, WIDTH), "table_VD": torch.ones(WORDS, WIDTH), "target_N": TARGET}
    with pytest.raises(ValueError, match=message):
        output_loss(**{**given, **arguments})


def test_what_is_reduced_is_true_or_false() -> None:
    reduce: Any = "mean"
    with pytest.raises(ValueError, match="reduce: needs True for the sum or False; got 'mean'"):
        LossOptions(reduce=reduce)


@pytest.mark.parametrize("value", [1.0, torch.nan])
def test_another_tables_entry_is_refused(value: float) -> None:
    """An equal one is not, be it NaN, as of a training that diverged."""
    table = SharedEmbedding(WORDS, WIDTH, 1)
    tied = nn.ModuleList([table, OutputLayer(table, borrowed=True)])
    state = {name: torch.full_like(entry, value) for name, entry in tied.state_dict().items()}
    tied.load_state_dict(state)
    torch.testing.assert_close(table.weight.data, torch.full((WORDS, WIDTH), value), equal_nan=True)
    state["1.weight"] = torch.zeros(WORDS, WIDTH)
    with pytest.raises(RuntimeError, match="1.weight: needs the table of the input, .* got another one"):
        tied.load_state_dict(state)


def test_a_tied_table_of_another_size_is_told_from_another_table() -> None:
    def tied(width: int) -> nn.ModuleList:
        table = SharedEmbedding(WORDS, width, 1)
        return nn.ModuleList([table, OutputLayer(table, borrowed=True)])

    with pytest.raises(RuntimeError, match=r"1.weight: needs shape \(5, 8\).*; got \(5, 4\)") as refused:
        tied(8).load_state_dict(tied(WIDTH).state_dict())
    assert "got another one" not in str(refused.value)
