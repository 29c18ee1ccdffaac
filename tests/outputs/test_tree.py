"""The hierarchical softmax."""

import math
from typing import Any

import numpy as np
import pytest
import torch

from fairseq_tiedemb.losses import LossOptions
from fairseq_tiedemb.outputs import BY_CLASSES, TREES, NamedClasses, OutputLayer, Tree

from .. import reference
from ..models.common import grown
from .common import COUNTS, MARKS, SIZE, TARGET, WIDTH, features

every_tree = pytest.mark.parametrize("kind", TREES)


# The last class is one of words that a file lacks, the marks among them.
CLASSES = NamedClasses(torch.tensor([3, 3, *(word % 4 for word in range(2, SIZE))]), ["00", "010", "1", ""])


def tree(kind: str = "huffman", counts: Any = COUNTS, marks: Any = MARKS) -> Tree:
    classes = CLASSES if kind == BY_CLASSES else None
    return grown(Tree(SIZE, WIDTH, counts, marks, kind=kind, classes=classes).double(), std=0.5)


def expected_log_prob(found: Tree, h: np.ndarray, word: int) -> float:
    """By the equation, from the word up to the root."""
    nodes, bias = found.nodes.detach().numpy(), found.node_bias.tolist()
    node, total = SIZE - 1 + word, 0.0
    while found.parents[node] >= 0:
        parent, side = int(found.parents[node]), int(found.turns[node])
        total += math.log(reference.sigmoid(side * (nodes[parent] @ h + bias[parent])))
        node = parent
    return total


@every_tree
def test_probabilities_are_products_along_the_paths(kind: str) -> None:
    found, h = tree(kind), features()
    expected = [[expected_log_prob(found, row, word) for word in range(2, SIZE)] for row in h.detach().numpy()]
    np.testing.assert_allclose(found.scores(h)[:, 2:].detach(), expected, rtol=1e-10)
    for word in range(2, SIZE):
        column = [row[word - 2] for row in expected]
        np.testing.assert_allclose(found.log_prob(h, torch.full_like(TARGET, word)).detach(), column, rtol=1e-10)


@every_tree
def test_probabilities_sum_to_1_without_the_marks(kind: str) -> None:
    found, h = tree(kind), features()
    scores = found.scores(h)
    assert scores.exp().sum(1).tolist() == pytest.approx([1.0] * len(h), abs=1e-12)
    assert scores[:, list(MARKS)].eq(-torch.inf).all()
    assert scores[:, 2:].isfinite().all()
    assert found.log_prob(h[:2], torch.tensor(MARKS)).tolist() == [-math.inf] * 2
    # As many nodes as leaves, less one, are used.
    assert len(found.path_nodes.unique()) == SIZE - len(MARKS) - 1


@pytest.mark.parametrize("mark", MARKS)
def test_marks_that_occur_are_leaves(mark: int) -> None:
    counts, h = COUNTS.clone(), features()
    counts[mark] = 3
    found = tree(counts=counts)
    scores = found.scores(h)
    assert scores.exp().sum(1).tolist() == pytest.approx([1.0] * len(TARGET), abs=1e-12)
    assert scores[:, mark].isfinite().all()
    assert scores[:, 1 - mark].eq(-torch.inf).all()
    torch.testing.assert_close(found.log_prob(h, torch.full_like(TARGET, mark)), scores[:, mark])


def test_nodes_on_no_path_start_at_0() -> None:
    found = tree()
    found.start_bias(torch.full((SIZE,), 1 / SIZE, dtype=torch.float64).log())
    is_used = torch.bincount(found.path_nodes, minlength=SIZE - 1) > 0
    assert not found.node_bias[~is_used].any()


def test_many_words_are_scored_in_parts_without_gradients() -> None:
    found = tree()
    h, target = features(2500), torch.randint(2, SIZE, (2500,))
    with torch.no_grad():
        in_parts = found.log_prob(h, target)
    torch.testing.assert_close(in_parts, found.log_prob(h, target).detach())


def test_huffmans_paths_are_short_for_frequent_words_and_a_balanced_trees_are_alike() -> None:
    lengths = dict(zip(COUNTS.tolist(), tree().lengths.tolist(), strict=True))
    assert lengths[30] < lengths[8] < lengths[1]
    assert set(tree("balanced").lengths[2:].tolist()) <= {3, 4}


def test_the_structure_comes_with_the_checkpoint() -> None:
    found = tree()
    # Other counts, which would make another tree, and none at all.
    for counts in (COUNTS.flip(0) + 1, None):
        other = Tree(SIZE, WIDTH, counts, MARKS).double()
        other.load_state_dict(found.state_dict())
        h = features()
        assert torch.equal(other.scores(h), found.scores(h))
        assert torch.equal(other.log_prob(h, TARGET), found.log_prob(h, TARGET))
    broken = Tree(SIZE, WIDTH, COUNTS, MARKS, kind=BY_CLASSES, problem=ValueError("--class-file: gone")).double()
    with pytest.raises(ValueError, match="--class-file: gone"):
        broken.log_prob(h, TARGET)
    by_classes = tree(BY_CLASSES)
    broken.load_state_dict(by_classes.state_dict())
    assert torch.equal(broken.log_prob(h, TARGET), by_classes.log_prob(h, TARGET))
    layer, borrowed = OutputLayer(tree()), OutputLayer(Tree(SIZE, WIDTH, None, MARKS).double())
    state = layer.state_dict()
    assert set(state) == {"nodes", "node_bias", "parents", "turns"}
    borrowed.load_state_dict(state)
    assert torch.equal(borrowed.scores(h), layer.scores(h))
    assert layer.tables() == {}


def by_classes(class_of: torch.Tensor, counts: torch.Tensor = COUNTS) -> OutputLayer:
    names = [format(each, "03b") for each in range(8)]
    return OutputLayer(Tree(SIZE, WIDTH, counts, MARKS, kind=BY_CLASSES, classes=NamedClasses(class_of, names)))


FOUR = torch.arange(SIZE) % 4


@pytest.mark.parametrize(
    ("class_of", "counts", "is_refused"),
    [
        (FOUR, COUNTS, False),
        (FOUR, COUNTS.flip(0) + 1, False),  # the same file; a tree of another text
        (torch.arange(SIZE) % 5, COUNTS, True),
        (torch.arange(SIZE) % 2, COUNTS, True),
        (torch.zeros(SIZE, dtype=torch.int64), COUNTS, False),  # one class, which says nothing
        (FOUR.where(torch.arange(SIZE) != 9, 3), COUNTS, True),  # one word
    ],
)
def test_classes_of_another_file_are_not_trained(
    class_of: torch.Tensor, counts: torch.Tensor, is_refused: bool, caplog: pytest.LogCaptureFixture
) -> None:
    trained, other = by_classes(FOUR), by_classes(class_of, counts)
    other.load_state_dict(trained.state_dict())
    differs = not (class_of is FOUR and counts is COUNTS)
    assert ("the tree is that of the checkpoint, not that of the options" in caplog.text) == differs
    if is_refused:
        with pytest.raises(ValueError, match=r"--class-file: .* got one with other"):
            other.check_training(LossOptions())
    else:
        other.check_training(LossOptions())
    assert torch.equal(other.head.parents, trained.head.parents)  # in evaluation the checkpoint's are what counts


def test_paths_are_made_again_only_for_another_tree(monkeypatch: pytest.MonkeyPatch) -> None:
    found, same, other = tree(), tree(), tree("balanced")
    made = []
    monkeypatch.setattr(Tree, "prepare", lambda self: made.append(self))
    found.load_state_dict(same.state_dict())
    assert made == []
    found.load_state_dict(other.state_dict())
    assert made == [found]


def test_a_tree_needs_leaves_and_a_kind() -> None:
    with pytest.raises(ValueError, match="--tree classes: needs classes of words; got none. Use --class-file"):
        Tree(SIZE, WIDTH, COUNTS, MARKS, kind=BY_CLASSES)
    with pytest.raises(ValueError, match="--output-layer tree: needs two words at least; got 1"):
        Tree(3, WIDTH, torch.tensor([0, 0, 5]), MARKS)
    with pytest.raises(ValueError, match="--tree: needs one of huffman, balanced, classes; got oak"):
        tree("oak")
    with pytest.raises(ValueError, match="width"):
        tree().scores(torch.zeros(2, WIDTH + 1))


def test_raw_scores_are_refused() -> None:
    with pytest.raises(ValueError, match="--raw: needs an output layer that scores words, .*; got --output-layer tree"):
        OutputLayer(tree()).raw_scores(features(), TARGET)
