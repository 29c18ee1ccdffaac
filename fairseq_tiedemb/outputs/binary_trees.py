"""Binary trees with a leaf per token, for the hierarchical softmax: Huffman's, a balanced one, and trees of classes."""

import heapq
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np


class BinaryTree(NamedTuple):
    """A binary tree of V leaves (the tokens) and V - 1 inner nodes; node 0 is the root, and parents precede children.

    With a score u_j for each inner node j, p(v) is the product of sigmoid(turn of c * u_j) over the nodes j above v,
    where c is the child of j on the way to v; the probabilities sum to 1 over the tokens.
    """

    parents: np.ndarray  # parent of each node, (2V - 1,), int64, inner nodes first, then tokens; -1 for the root
    turns: np.ndarray  # side of each node under its parent, (2V - 1,), int8: +1 or -1; 0 for the root


def huffman_tree(counts: np.ndarray) -> BinaryTree:
    """The binary tree with the smallest mean path length for the given counts (V,): Huffman's.

    It merges the two rarest nodes until one is left. The rarer of the two takes side +1. Ties go to a token before a
    merged node, which keeps the tree flat, to the token with the larger index, and to the merged node that is older.

    Source: Huffman 1952; Mikolov et al. 2013, section 2.1 (words).
    """
    return class_tree(counts, np.zeros(len(counts), np.int64), [""])


def class_tree(counts: np.ndarray, class_of: np.ndarray, codes: Sequence[str]) -> BinaryTree:
    """A tree of word classes, with Huffman's tree of a class's tokens under each class.

    ``counts`` and ``class_of`` (V,) are those of the tokens, ``codes`` those of the classes, all different. If the
    codes are bit strings, the classes' tree follows their bits from the root down. It branches only where both sides
    have classes, and a class whose code is a prefix of other codes is the sibling of their whole subtree. For other
    codes it is Huffman's tree of the classes' counts.

    Source: Mnih & Hinton 2009, section 4 (trees out of clusters); Brown et al. 1992, section 3 (bits).
    """
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
    # The last pair becomes the root. Node numbers: V - 1 + v for token v, V - 1 - i for the i-th merged pair (from 1).
    return _tree(len(counts) - 1 + np.array(children[::-1], np.int64).reshape(-1, 2))


def _join(nodes: dict[str, int], children: list[list[int]]) -> None:
    """Merges nodes into the tree of their bit strings, the keys of ``nodes``; appends new nodes to ``children``."""
    prefixes = {code[:length] for code in nodes for length in range(len(code) + 1)}
    subtrees: dict[str, int] = {}
    for prefix in sorted(prefixes, reverse=True):  # reverse order puts longer codes before their prefixes
        below = [subtrees[prefix + bit] for bit in "01" if prefix + bit in subtrees]
        first, *more = [*below, *([nodes[prefix]] if prefix in nodes else [])]
        for node in more:
            children.append([first, node])
            first = -len(children)
        subtrees[prefix] = first


def _merge(nodes: list[int], counts: np.ndarray, children: list[list[int]]) -> int:
    """Merges the two rarest nodes until one is left; returns that node and appends the merged pairs to ``children``.

    A token's number is its index; the number of a merged node is -1 - its position in ``children``.
    """
    # Count, what decides between equal counts (above 0 for merged nodes), and node.
    heap = [(count, -place, node) for place, (count, node) in enumerate(zip(counts.tolist(), nodes, strict=True))]
    heapq.heapify(heap)
    for _ in range(len(nodes) - 1):
        (rarer, _, first), (other, _, second) = heapq.heappop(heap), heapq.heappop(heap)
        children.append([first, second])
        heapq.heappush(heap, (rarer + other, len(children), -len(children)))
    return heap[0][-1]


def balanced_tree(size: int) -> BinaryTree:
    """The binary tree of V tokens (``size``), from left to right, whose path lengths differ by at most 1.

    Neighbours share most of their paths.

    Source: Morin & Bengio 2005, section 3.
    """
    children = []
    spans = [(0, size)] if size > 1 else []  # of tokens, each below an inner node; read while it grows
    for start, stop in spans:
        middle = (start + stop + 1) // 2
        for span in ((start, middle), (middle, stop)):
            if span[1] - span[0] == 1:
                children.append(size - 1 + span[0])
            else:
                children.append(len(spans))
                spans.append(span)
    return _tree(np.array(children, np.int64).reshape(-1, 2))


def _tree(children: np.ndarray) -> BinaryTree:
    """The tree of the inner nodes' children (V - 1, 2): the child on side +1, then the child on side -1."""
    inner = len(children)
    parents, turns = np.full(2 * inner + 1, -1, np.int64), np.zeros(2 * inner + 1, np.int8)
    parents[children] = np.arange(inner)[:, None]
    turns[children] = 1, -1
    return BinaryTree(parents, turns)
