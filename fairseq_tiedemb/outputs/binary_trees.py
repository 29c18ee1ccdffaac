"""Binary trees over words, whose leaves' paths a tree-shaped softmax multiplies: Huffman's, a balanced, of classes."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np


class BinaryTree(NamedTuple):
    """A binary tree with V leaves, the words, and V - 1 inner nodes, number 0 the root and parents before children.

    With a score u_j for each inner node j, log p(v) = sum_d log sigmoid(signs[v, d] * u[paths[v, d]]), over d below
    lengths[v]; it sums to 1 over the words.

    Attributes:
        paths: inner nodes from the root to each word, (V, depth), int64; 0 beyond the word's length.
        signs: which way each word goes there, (V, depth), int8: +1 or -1; 0 beyond the word's length.
        lengths: inner nodes above each word, (V,), int64.
        parents: the inner node above each node, (2V - 1,), int64: inner nodes first, then words; -1 above the root.
        turns: which way each node lies from its parent, (2V - 1,), int8: +1 or -1; 0 for the root.
    """

    paths: np.ndarray
    signs: np.ndarray
    lengths: np.ndarray
    parents: np.ndarray
    turns: np.ndarray


def huffman_tree(counts: np.ndarray) -> BinaryTree:
    """The tree with the smallest mean length of a path, by merging the two rarest nodes until one is left.

    Nodes come in sorted order from two queues, of words and of merged nodes, so that merging is linear in V. The rarer
    of the two is to the side of +1. Of equally frequent ones a word comes before a merged node, which keeps the tree
    flat, a later word before an earlier, and an earlier merged node before a later.

    Args:
        counts: how often each word comes, (V,), finite and 0 or more.

    Raises:
        ValueError: for no words, and for counts that are negative or not finite.

    Source: Huffman 1952; van Leeuwen 1976 (two queues); Mikolov et al. 2013, section 2.1 (words).
    """
    counts = _checked(counts)
    children: list[list[int]] = []
    _merge(list(range(len(counts))), counts, children)
    return _from_merged(children, len(counts))


def class_tree(counts: np.ndarray, class_of: np.ndarray, codes: Sequence[str]) -> BinaryTree:
    """A tree of classes, and under each class Huffman's tree of its words.

    The classes' tree is that of their codes, bits from the root down; it branches only where there are classes on both
    sides, and a class whose code others' begin with is the sibling of their whole subtree. Where codes are no bits it
    is Huffman's tree of the classes' counts.

    Args:
        counts: how often each word comes, (V,), finite and 0 or more.
        class_of: the class of each word, (V,).
        codes: of the classes, all different.

    Raises:
        ValueError: for no words, and for counts that are negative or not finite.

    Source: Mnih & Hinton 2009, section 4 (trees out of clusters); Brown et al. 1992, section 3 (bits).
    """
    counts = _checked(counts)
    children: list[list[int]] = []
    roots: dict[int, int] = {}
    for number in np.unique(class_of).tolist():
        words = np.flatnonzero(class_of == number)
        roots[number] = _merge(words.tolist(), counts[words], children)
    if all(set(codes[number]) <= {"0", "1"} for number in roots):
        _join({codes[number]: root for number, root in roots.items()}, children)
    else:
        totals = np.bincount(class_of, counts)[list(roots)]
        _merge(list(roots.values()), totals, children)
    return _from_merged(children, len(counts))


def _join(nodes: dict[str, int], children: list[list[int]]) -> None:
    """Merges nodes into the tree of their bits.

    Args:
        nodes: by their bits.
        children: of all merged nodes, to which the new ones are added.
    """
    prefixes = {code[:length] for code in nodes for length in range(len(code) + 1)}
    subtrees: dict[str, int] = {}
    for prefix in sorted(prefixes, reverse=True):  # what goes on from a prefix comes before it
        below = [subtrees[prefix + bit] for bit in "01" if prefix + bit in subtrees]
        first, *more = [*below, *([nodes[prefix]] if prefix in nodes else [])]
        for node in more:
            children.append([first, node])
            first = -len(children)
        subtrees[prefix] = first


def _checked(counts: np.ndarray) -> np.ndarray:
    """Counts of words as an array.

    Raises:
        ValueError: for no words, and for counts that are negative or not finite.
    """
    counts = np.asarray(counts)
    if counts.ndim != 1 or not len(counts):
        raise ValueError(f"counts: needs shape (V,), of a word at least; got {counts.shape}. Use one count a word.")
    if not np.isfinite(counts).all() or counts.min() < 0:
        worst = counts[~(np.isfinite(counts) & (counts >= 0))][0]
        raise ValueError(f"counts: needs finite numbers, 0 or more; got {worst}. Use counts of words.")
    return counts


def _merge(nodes: list[int], counts: np.ndarray, children: list[list[int]]) -> int:
    """Merges the two rarest nodes until one is left, and returns it.

    Args:
        nodes: words by their index, merged nodes by -1 - their place among the children.
        counts: of the nodes.
        children: of all merged nodes, to which the new ones are added.
    """
    order = np.lexsort((-np.arange(len(nodes)), counts))
    # Plain numbers: reading one at a time from an array takes several times as long.
    words, word_counts = [nodes[place] for place in order.tolist()], counts[order].tolist()
    first = len(children)
    merged_counts: list[float] = []
    word = merged = 0
    for _ in range(len(nodes) - 1):
        pair: list[int] = []
        total = 0.0
        for _ in range(2):
            if merged >= len(merged_counts) or (word < len(words) and word_counts[word] <= merged_counts[merged]):
                pair.append(words[word])
                total += word_counts[word]
                word += 1
            else:
                pair.append(-1 - first - merged)
                total += merged_counts[merged]
                merged += 1
        children.append(pair)
        merged_counts.append(total)
    return nodes[0] if len(nodes) == 1 else -len(children)


def _from_merged(children: list[list[int]], size: int) -> BinaryTree:
    """The tree of nodes in the order of their merging, the last the root, whose number is 0."""
    # Numbers of words and of merged nodes grow from V - 1 on, upwards and downwards.
    return _tree(size - 1 + np.array(children[::-1], np.int64).reshape(-1, 2))


def balanced_tree(order: np.ndarray) -> BinaryTree:
    """The tree whose paths differ in length by 1 at most, with the words from left to right in a given order.

    Args:
        order: the words 0 ... V - 1, each once; neighbours share most of their paths.

    Raises:
        ValueError: for no words, and for words that are missing or twice there.

    Source: Morin & Bengio 2005, section 3.
    """
    order = np.asarray(order)
    size = len(order)
    if order.ndim != 1 or not size or not np.array_equal(np.sort(order), np.arange(size)):
        raise ValueError(f"order: needs each of the words 0 ... V - 1 once; got {order}. Use np.arange(V), say.")
    children = np.empty((size - 1, 2), np.int64)
    starts, stops = np.array([0]), np.array([size])
    number = 0
    while len(starts):
        inner = stops - starts > 1
        starts, stops = starts[inner], stops[inner]
        middles = (starts + stops + 1) // 2
        # The nodes of the next level, left and right in turn: inner ones are numbered on, leaves are words.
        starts, stops = np.stack((starts, middles), 1).ravel(), np.stack((middles, stops), 1).ravel()
        is_leaf = stops - starts == 1
        first = number + len(starts) // 2
        nodes = first + np.cumsum(~is_leaf) - 1
        nodes[is_leaf] = size - 1 + order[starts[is_leaf]]
        children[number:first] = nodes.reshape(-1, 2)
        number = first
    return _tree(children)


def _tree(children: np.ndarray) -> BinaryTree:
    """The tree of inner nodes' children (V - 1, 2): on the side of +1, and of -1."""
    inner = len(children)
    size = inner + 1
    parents, turns = np.full(inner + size, -1, np.int64), np.zeros(inner + size, np.int8)
    for side, turn in enumerate((1, -1)):
        parents[children[:, side]] = np.arange(inner)
        turns[children[:, side]] = turn
    lengths, node = np.zeros(size, np.int64), np.arange(inner, inner + size)
    while (node > 0).any():
        lengths += node > 0
        node = np.where(node > 0, parents[node], 0)
    depth = int(lengths.max())
    paths, signs = np.zeros((size, depth), np.int64), np.zeros((size, depth), np.int8)
    # From all words up at once, but for those that have reached the root.
    word, node = np.arange(size), np.arange(inner, inner + size)
    for step in range(depth):
        word, node = word[node > 0], node[node > 0]
        place = lengths[word] - 1 - step
        signs[word, place] = turns[node]
        node = parents[node]
        paths[word, place] = node
    return BinaryTree(paths, signs, lengths, parents, turns)
