"""Binary trees over words, against Huffman's algorithm as it is written in books."""

import heapq

import numpy as np
import pytest

from fairseq_tiedemb.outputs.binary_trees import BinaryTree, balanced_tree, class_tree, huffman_tree

from ..reference import paths

ZIPF = (10_000 / (np.arange(300) + 1)).astype(int)


def shortest_total(counts: list[int]) -> int:
    """Sum over words of count times length of the path: what merging adds up to."""
    heap = list(counts)
    heapq.heapify(heap)
    total = 0
    while len(heap) > 1:
        merged = heapq.heappop(heap) + heapq.heappop(heap)
        heapq.heappush(heap, merged)
        total += merged
    return total


def lengths(tree: BinaryTree) -> list[int]:
    return [len(path) for path in paths(tree)]


def check_is_a_tree(tree: BinaryTree, size: int) -> None:
    assert sum(2.0**-length for length in lengths(tree)) == 1.0
    assert len({tuple(path) for path in paths(tree)}) == size
    assert len(tree.parents) == len(tree.turns) == 2 * size - 1
    assert (tree.parents[0], tree.turns[0]) == (-1, 0)
    for node in range(1, 2 * size - 1):
        assert 0 <= tree.parents[node] < min(node, size - 1)
    # Each inner node has two children, one to each side.
    sides = set(zip(tree.parents[1:].tolist(), tree.turns[1:].tolist(), strict=True))
    assert sides == {(node, turn) for node in range(size - 1) for turn in (1, -1)}


@pytest.mark.parametrize(
    "counts",
    [[3], [1, 1], [5, 1, 1, 2], [0, 0, 0, 7, 3], [1] * 13, [1, 1, 2, 3, 5, 8, 13, 21], ZIPF, ZIPF[::-1], [0.5, 0.2]],
    ids=str,
)
def test_huffman_is_the_shortest_tree(counts: list[int]) -> None:
    counts = np.array(counts)
    tree = huffman_tree(counts)
    check_is_a_tree(tree, len(counts))
    assert counts @ lengths(tree) == pytest.approx(shortest_total(counts.tolist()), rel=1e-12)


def test_ties_are_broken_in_one_way() -> None:
    # 1 + 1 of the last two words; then 1 before the merged 2 is not smaller, so the word 2 comes before it.
    tree = huffman_tree(np.array([5, 2, 1, 1]))
    assert paths(tree) == [[(0, -1)], [(0, 1), (1, 1)], [(0, 1), (1, -1), (2, -1)], [(0, 1), (1, -1), (2, 1)]]


def test_equal_counts_make_a_flat_tree() -> None:
    assert set(lengths(huffman_tree(np.full(64, 3)))) == {6}


@pytest.mark.parametrize("size", [1, 2, 3, 4, 5, 31, 32, 33, 100])
def test_balanced_is_balanced_and_keeps_the_order(size: int) -> None:
    tree = balanced_tree(size)
    check_is_a_tree(tree, size)
    assert max(lengths(tree)) - min(lengths(tree)) <= 1
    # From left to right: +1 before -1 at the first step that differs.
    codes = [code(tree, word) for word in range(size)]
    assert codes == sorted(codes)


COUNTS = np.array([9, 8, 7, 6, 5, 4, 3, 2, 1])
CLASS_OF = np.array([0, 1, 2, 0, 1, 2, 0, 1, 3])
CODES = {
    "a whole tree": ["00", "010", "011", "1"],
    "branches without a side": ["0001", "0110", "01110", "0"],  # the last is above all others
    "one without bits": ["00", "01", "1", ""],
    "names": ["noun", "verb", "1", "?"],
}


def code(tree: BinaryTree, word: int) -> str:
    return "".join("0" if sign == 1 else "1" for _, sign in paths(tree)[word])


@pytest.mark.parametrize("name", CODES)
def test_words_of_a_class_stand_under_one_node_as_huffman_puts_them(name: str) -> None:
    tree = class_tree(COUNTS, CLASS_OF, CODES[name])
    check_is_a_tree(tree, len(COUNTS))
    for number in range(4):
        words = np.flatnonzero(CLASS_OF == number)
        alone = huffman_tree(COUNTS[words])
        above = {code(tree, word).removesuffix(code(alone, i)) for i, word in enumerate(words)}
        assert len(above) == 1
        assert [code(tree, word).removeprefix(*above) for word in words] == [code(alone, i) for i in range(len(words))]


def test_the_classes_tree_is_that_of_their_bits() -> None:
    tree = class_tree(COUNTS, CLASS_OF, CODES["a whole tree"])
    for word, number in enumerate(CLASS_OF):
        assert code(tree, word).startswith(CODES["a whole tree"][number])
    tree = class_tree(COUNTS, CLASS_OF, CODES["branches without a side"])
    for word, number in enumerate(CLASS_OF):
        assert code(tree, word).startswith(("00", "010", "011", "1")[number])


def test_without_bits_it_is_huffmans_of_the_classes() -> None:
    tree = class_tree(COUNTS, CLASS_OF, CODES["names"])
    classes = huffman_tree(np.bincount(CLASS_OF, COUNTS))
    for word, number in enumerate(CLASS_OF):
        assert code(tree, word).startswith(code(classes, number))


def test_a_tree_of_one_class_and_of_classes_of_one_word() -> None:
    for bits in ("", "0110"):
        one = class_tree(COUNTS, np.zeros(9, int), [bits])
        assert [code(one, word) for word in range(9)] == [code(huffman_tree(COUNTS), word) for word in range(9)]
    codes = [code(huffman_tree(COUNTS), word) for word in range(9)]
    each = class_tree(COUNTS[::-1], np.arange(9), codes)
    assert [code(each, word) for word in range(9)] == codes
