"""Binary trees over words, against Huffman's algorithm as it is written in books."""

import heapq

import numpy as np
import pytest

from fairseq_tiedemb.outputs.binary_trees import BinaryTree, balanced_tree, class_tree, huffman_tree

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


def check_is_a_tree(tree: BinaryTree, size: int) -> None:
    assert tree.paths.shape == tree.signs.shape == (size, tree.lengths.max())
    assert sum(2.0**-tree.lengths) == 1.0
    routes = set()
    for path, signs, length in zip(tree.paths, tree.signs, tree.lengths, strict=True):
        assert (signs[:length] != 0).all()
        assert not signs[length:].any()
        assert not path[length:].any()
        assert (np.diff(path[:length]) > 0).all()
        routes.add(tuple(signs[:length]))
    assert len(routes) == size
    for node in range(1, 2 * size - 1):
        assert tree.parents[node] < min(node, size - 1)
    for word in range(size):
        node = size - 1 + word
        for step in reversed(range(tree.lengths[word])):
            assert tree.signs[word, step] == tree.turns[node]
            node = tree.parents[node]
            assert tree.paths[word, step] == node
        assert node == 0
    # Each inner node has two children, one to each side.
    sides = {(parent, turn) for parent, turn in zip(tree.parents[1:], tree.turns[1:], strict=True)}
    assert len(sides) == 2 * (size - 1)


@pytest.mark.parametrize(
    "counts",
    [[3], [1, 1], [5, 1, 1, 2], [0, 0, 0, 7, 3], [1] * 13, [1, 1, 2, 3, 5, 8, 13, 21], ZIPF, ZIPF[::-1], [0.5, 0.2]],
    ids=str,
)
def test_huffman_is_the_shortest_tree(counts: list[int]) -> None:
    counts = np.array(counts)
    tree = huffman_tree(counts)
    check_is_a_tree(tree, len(counts))
    assert counts @ tree.lengths == pytest.approx(shortest_total(counts.tolist()), rel=1e-12)


def test_ties_are_broken_in_one_way() -> None:
    # 1 + 1 of the last two words; then 1 before the merged 2 is not smaller, so the word 2 comes before it.
    tree = huffman_tree(np.array([5, 2, 1, 1]))
    assert tree.lengths.tolist() == [1, 2, 3, 3]
    assert tree.paths.tolist() == [[0, 0, 0], [0, 1, 0], [0, 1, 2], [0, 1, 2]]
    assert tree.signs.tolist() == [[-1, 0, 0], [1, 1, 0], [1, -1, -1], [1, -1, 1]]


def test_equal_counts_make_a_flat_tree() -> None:
    assert set(huffman_tree(np.full(64, 3)).lengths) == {6}


@pytest.mark.parametrize("size", [1, 2, 3, 4, 5, 31, 32, 33, 100])
def test_balanced_is_balanced(size: int) -> None:
    order = np.random.default_rng(1).permutation(size)
    tree = balanced_tree(order)
    check_is_a_tree(tree, size)
    assert tree.lengths.max() - tree.lengths.min() <= 1


def test_balanced_keeps_the_order() -> None:
    order = np.random.default_rng(1).permutation(21)
    tree = balanced_tree(order)
    # From left to right: +1 before -1 at the first step that differs.
    assert sorted(range(21), key=lambda word: tuple(-tree.signs[word])) == order.tolist()


COUNTS = np.array([9, 8, 7, 6, 5, 4, 3, 2, 1])
CLASS_OF = np.array([0, 1, 2, 0, 1, 2, 0, 1, 3])
CODES = {
    "a whole tree": ["00", "010", "011", "1"],
    "branches without a side": ["0001", "0110", "01110", "0"],  # the last is above all others
    "one without bits": ["00", "01", "1", ""],
    "names": ["noun", "verb", "1", "?"],
}


def code(tree: BinaryTree, word: int) -> str:
    return "".join("0" if sign == 1 else "1" for sign in tree.signs[word, : tree.lengths[word]])


@pytest.mark.parametrize("name", CODES)
def test_words_of_a_class_stand_under_one_node_as_huffman_puts_them(name: str) -> None:
    tree = class_tree(COUNTS, CLASS_OF, CODES[name])
    check_is_a_tree(tree, len(COUNTS))
    for number in range(4):
        words = np.flatnonzero(CLASS_OF == number)
        alone = huffman_tree(COUNTS[words])
        above = {code(tree, word)[: tree.lengths[word] - alone.lengths[i]] for i, word in enumerate(words)}
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


@pytest.mark.parametrize(
    ("counts", "message"),
    [
        (np.empty(0), r"got \(0,\)"),
        (np.ones((2, 2)), r"got \(2, 2\)"),
        (np.array([1, -3]), "got -3"),
        (np.array([1.0, np.nan]), "got nan"),
    ],
)
def test_counts_that_are_none(counts: np.ndarray, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        huffman_tree(counts)
    with pytest.raises(ValueError, match=message):
        class_tree(counts, np.zeros(counts.shape, int), [""])


@pytest.mark.parametrize("order", [[], [0, 2], [0, 1, 1], [[0, 1]]])
def test_an_order_that_is_none(order: list[int]) -> None:
    with pytest.raises(ValueError, match=r"each of the words 0 \.\.\. V - 1 once; got \["):
        balanced_tree(np.array(order, int))
