"""The hierarchical softmax: tokens are leaves of a binary tree, and every inner node is a binary decision."""

import logging
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .._shapes import check_features, check_pairs
from ..head import Head, no_counts
from ..option_checks import OneOf, check_value
from ..precision import exact
from ..scored_rows import gather_rows
from .binary_trees import BinaryTree, balanced_tree, class_tree, huffman_tree
from .class_file import NamedClasses, of_another_file

logger = logging.getLogger(__name__)
BY_CLASSES = "classes"


def _of_classes(counts: Tensor, classes: NamedClasses | None) -> BinaryTree:
    if classes is None:
        raise ValueError(f"--tree {BY_CLASSES}: needs classes of words; got none. Use --class-file, or --tree huffman.")
    return class_tree(counts.numpy(), classes.class_of.numpy(), classes.names)


# Values of --tree: functions of the leaves' counts (V,), in dictionary order, and of their classes.
TREES: dict[str, Callable[[Tensor, NamedClasses | None], BinaryTree]] = {
    "huffman": lambda counts, _: huffman_tree(counts.numpy()),
    "balanced": lambda counts, _: balanced_tree(len(counts)),
    BY_CLASSES: _of_classes,
}
ROWS = 1024  # targets whose paths are gathered at a time without gradients


class Tree(Head):
    """Hierarchical softmax: a token's probability is the product of the binary decisions on its path from the root.

        u_j = nodes_j . h + bias_j      for each inner node j
        p(v | h) = product over the inner nodes j above v of sigmoid(sign_vj u_j)

    sign_vj is +1 on one side of j and -1 on the other, so probabilities sum to 1. A token costs its path length: with
    Huffman's tree 9.5 nodes per token of PTB, where the softmax takes 10,000 logits.

    Inner nodes are no tokens, so no table can be shared with them. A tree of L leaves has L - 1 inner nodes. Special
    symbols that the training text lacks (``<s>``, ``<pad>``) are no leaves and have probability 0, so the last rows of
    ``nodes`` may be unused. Checkpoints hold the tree as the parent of each node and its side.

    Args:
        size: V, vocabulary size.
        width: D, width of the features.
        counts: counts of the tokens (V,); None if a checkpoint brings the tree.
        specials: indices of fairseq's special symbols.
        bias: whether inner nodes have a bias; word2vec's have none.
        kind: "huffman"; "balanced", with dictionary neighbours side by side at one or two depths; or "classes"
            (``class_tree``).
        classes: word classes, for "classes".
        problem: error to raise if the tree is needed before a checkpoint brings it.

    Raises:
        ValueError: for fewer than two leaves, for an unknown kind, and for "classes" without classes.

    Source: Morin & Bengio 2005; Mikolov et al. 2013, section 2.1 (Huffman's tree; without biases).
    """

    flag = "--output-layer tree"
    scores_every_token = False
    by_target = True
    loss_is_its_own = True
    node_bias: Tensor | None

    def __init__(
        self,
        size: int,
        width: int,
        counts: Tensor | None,
        specials: Sequence[int],
        *,
        bias: bool = True,
        kind: str = "huffman",
        classes: NamedClasses | None = None,
        problem: ValueError | None = None,
    ):
        super().__init__()
        check_value("--tree", kind, OneOf(tuple(TREES), "huffman"))
        self.size, self.kind, self.problem = size, kind, problem
        self._class_of = classes.class_of if kind == BY_CLASSES and classes is not None else None
        self.nodes = nn.Parameter(torch.zeros(size - 1, width))
        self.register_parameter("node_bias", nn.Parameter(torch.zeros(size - 1)) if bias else None)
        # Inner nodes first, then tokens. Parent -1 and turn 0 mark the root and nodes outside the tree.
        self.parents = nn.Buffer(torch.full((2 * size - 1,), -1))
        self.turns = nn.Buffer(torch.zeros(2 * size - 1, dtype=torch.int8))
        if counts is not None and problem is None:
            self._grow(counts, specials, classes)
        self.prepare()
        self.register_load_state_dict_post_hook(_prepare)

    def _grow(self, counts: Tensor, specials: Sequence[int], classes: NamedClasses | None) -> None:
        is_leaf = torch.ones(self.size, dtype=torch.bool)
        is_leaf[list(specials)] = counts[list(specials)].gt(0)
        leaves = is_leaf.nonzero().squeeze(1)
        if len(leaves) < 2:
            raise ValueError(f"{self.flag}: needs two words at least; got {len(leaves)}. Use another dictionary.")
        of_leaves = classes and NamedClasses(classes.class_of[leaves], classes.names)
        tree, inner = TREES[self.kind](counts[leaves], of_leaves), len(leaves) - 1
        numbers = torch.cat((torch.arange(inner), self.size - 1 + leaves))
        self.parents[numbers] = torch.from_numpy(tree.parents)
        self.turns[numbers] = torch.from_numpy(tree.turns)

    def prepare(self) -> None:
        """Derives the tokens' paths from the parents; called again after a checkpoint is loaded.

        Paths are concatenated: the path of token v is ``path_nodes[starts[v] : starts[v] + lengths[v]]``.
        """
        inner = self.size - 1
        start = child = node = (self.parents >= 0).nonzero().squeeze(1)
        depth = torch.zeros_like(self.parents)
        # (token, inner node above it, side), climbing from all nodes at once
        steps = [(node[:0], node[:0], self.turns[:0])]
        while len(start):
            depth[start] += 1
            above, is_word = self.parents[child], start >= inner
            steps.append((start[is_word] - inner, above[is_word], self.turns[child[is_word]]))
            goes_on = self.parents[above] >= 0
            start, child = start[goes_on], above[goes_on]
        word, path_nodes, path_signs = (torch.cat(parts) for parts in zip(*steps, strict=True))
        order, lengths = word.argsort(stable=True), torch.bincount(word, minlength=self.size)
        self.path_nodes = nn.Buffer(path_nodes[order], persistent=False)
        self.path_signs = nn.Buffer(path_signs[order], persistent=False)
        self.lengths = nn.Buffer(lengths, persistent=False)
        self.starts = nn.Buffer(lengths.cumsum(0) - lengths, persistent=False)
        self.by_depth = nn.Buffer(node[depth[node].argsort(stable=True)], persistent=False)
        self.depths = torch.bincount(depth[node]).tolist()[1:]
        self.prepared = nn.Buffer(torch.stack((self.parents, self.turns)), persistent=False)

    def scores(self, features: Tensor) -> Tensor:
        """Log-probabilities of the whole vocabulary: (*, D) -> (*, V), in float32 or more precise.

        Computed from the root down: log p(node) = log p(parent) + log sigmoid(turn u_parent).
        """
        check_features(features, self.nodes.size(1))
        self.require_counts()
        flat = features.reshape(-1, features.size(-1))
        u_NJ = exact(F.linear(flat, self.nodes, self.node_bias))
        parts = []
        # `place` is a node's position within its depth, where the next depth looks up its parents.
        place = torch.zeros_like(self.parents)
        above = u_NJ.new_zeros(len(flat), 1)
        for level in self.by_depth.split(self.depths):
            up = self.parents[level]
            above = above[:, place[up]] + F.logsigmoid(u_NJ[:, up] * self.turns[level])
            place[level] = torch.arange(len(level), device=level.device)
            parts.append(above)
        log_prob = u_NJ.new_full((len(flat), 2 * self.size - 1), -torch.inf)
        log_prob = log_prob.index_copy(1, self.by_depth, torch.cat(parts, 1))
        return log_prob[:, self.size - 1 :].reshape(*features.shape[:-1], self.size)

    def require_counts(self) -> None:
        """Raises ValueError if the tree is unknown: without counts of a training text, or without classes."""
        if not len(self.path_nodes):
            raise self.problem or no_counts(self.flag)

    def log_prob(self, features_ND: Tensor, target_N: Tensor) -> Tensor:
        check_features(features_ND, self.nodes.size(1))
        check_pairs(features_ND, target_N, self.size)
        self.require_counts()
        rows = len(target_N) if torch.is_grad_enabled() else ROWS
        pairs = zip(features_ND.split(max(rows, 1)), target_N.split(max(rows, 1)), strict=True)
        return torch.cat([self._log_prob(features, target) for features, target in pairs])

    def _log_prob(self, features_ND: Tensor, target_N: Tensor) -> Tensor:
        lengths = self.lengths.index_select(0, target_N)
        ends = lengths.cumsum(0)
        word = torch.repeat_interleave(torch.arange(len(target_N), device=target_N.device), lengths)
        place = torch.arange(len(word), device=word.device) + (self.starts[target_N] - ends + lengths)[word]
        nodes, signs = self.path_nodes[place], self.path_signs[place]
        rows = gather_rows(self.nodes, nodes, sparse=self.sparse_gradients)
        u = (rows * gather_rows(features_ND, word)).sum(1)
        if self.node_bias is not None:
            u = u + gather_rows(self.node_bias.unsqueeze(1), nodes).squeeze(1)
        total = u.new_zeros(len(target_N)).masked_fill(lengths.eq(0), -torch.inf)
        return total.index_add(0, word, F.logsigmoid(u * signs))

    def start_bias(self, log_prob_V: Tensor | None) -> None:
        """Sets each node's bias to the log odds of its two sides under these log-probabilities (V,); None sets 0."""
        if self.node_bias is None:
            return
        bias = torch.zeros_like(self.node_bias, dtype=torch.float64)
        if log_prob_V is not None:
            p = log_prob_V.to(bias).exp().repeat_interleave(self.lengths)
            sides = [bias.index_add(0, self.path_nodes, p * self.path_signs.eq(sign)) for sign in (1, -1)]
            used = sides[0] > 0
            bias[used] = sides[0][used].log() - sides[1][used].log()
        with torch.no_grad():
            self.node_bias.copy_(bias)

    def has_subtrees(self, class_of: Tensor) -> bool:
        """Whether the leaves of each class (V,) are all the leaves under one node."""
        is_leaf = self.lengths > 0
        size_of, leaves_under = torch.bincount(class_of[is_leaf]), torch.bincount(self.path_nodes)
        above = class_of.repeat_interleave(self.lengths) * self.size + self.path_nodes  # class and node, a pair each
        pairs, leaves = above.unique(return_counts=True)
        classes, nodes = pairs // self.size, pairs % self.size
        is_whole = leaves.eq(size_of[classes]) & leaves.eq(leaves_under[nodes])
        return len(classes[is_whole].unique()) == int(size_of.gt(1).sum())

    def extra_repr(self) -> str:
        return f"{self.size} words, {self.nodes.size(1)} wide"


def _prepare(tree: Any, _: Any) -> None:
    if torch.equal(torch.stack((tree.parents, tree.turns)), tree.prepared):
        return
    if len(tree.path_nodes):
        logger.warning(f"{tree.flag}: the tree is that of the checkpoint, not that of the options")
    tree.prepare()
    if tree._class_of is not None and not tree.has_subtrees(tree._class_of.to(tree.lengths.device)):
        tree.not_to_be_trained = of_another_file("tree")
