"""Probabilities of words along the paths of a binary tree."""

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..embedding import SharedEmbedding
from ..losses import PLAIN_LOSS, LossOptions, OutputLoss
from .huffman import huffman_tree
from .negative_sampling import check_plain, distinct

# Features whose scores of inner nodes are held at a time.
ROWS = 2048


class HierarchicalSoftmax(nn.Module):
    """A head over the Huffman tree of the words, with a vector u_j and no bias for each of its V - 1 inner nodes.

        p(w | h) = prod_d sigmoid(sign_d (u_{j_d} . h))

    over the nodes j_d of the path to w, with sign +1 towards the rarer side and -1 towards the other. It sums to 1. A
    loss computes the nodes above its targets alone: about log2 of the perplexity of the unigram distribution for each.

    There is no table of words here, so it can be tied with none.

    Args:
        counts: how often words come, (V,); those that never come are the deepest.
        width: D.

    Source: Morin & Bengio 2005; Mikolov et al. 2013 ("Distributed representations"), section 2.1 (no bias, Huffman's
    tree); word2vec.c (which side is +1).
    """

    counts: Tensor
    paths: Tensor
    signs: Tensor
    parents: Tensor
    turns: Tensor
    _levels: list[Tensor]

    def __init__(self, counts: Tensor, width: int):
        super().__init__()
        self.nodes = nn.Parameter(torch.zeros(len(counts) - 1, width))
        self.sparse_gradients = False
        self.register_buffer("counts", counts.clone())
        self._grow()
        # The tree follows from the counts, which checkpoints have.
        self.register_load_state_dict_post_hook(lambda module, _: module._grow())

    def _grow(self) -> None:
        tree = huffman_tree(self.counts.cpu().numpy())
        for name, array in (("paths", tree.paths), ("signs", tree.signs), ("parents", tree.parents)):
            self.register_buffer(name, torch.from_numpy(array).to(self.counts.device), persistent=False)
        self.register_buffer("turns", torch.from_numpy(tree.turns).to(self.counts.device), persistent=False)
        depths = torch.zeros(len(tree.parents), dtype=torch.long)
        inner = len(self.counts) - 1
        depths[inner:] = torch.from_numpy(tree.lengths)
        for level in range(tree.paths.shape[1]):
            inside = torch.from_numpy(tree.signs[:, level] != 0)
            depths[torch.from_numpy(tree.paths[:, level])[inside]] = level
        self._levels = [depths.eq(level).nonzero().squeeze(1) for level in range(1, tree.paths.shape[1] + 1)]

    def scores(self, features: Tensor) -> Tensor:
        """Log-probabilities of all words: (*, D) -> (*, V)."""
        flat = features.reshape(-1, features.size(-1))
        products = F.linear(flat, self.nodes)
        exact = torch.promote_types(products.dtype, torch.float32)
        found = products.new_zeros(len(flat), len(self.parents), dtype=exact)
        for level in self._levels:
            level = level.to(flat.device)
            above = self.parents[level]
            found[:, level] = found[:, above] + F.logsigmoid(self.turns[level] * products[:, above].to(exact))
        return found[:, len(self.nodes) :].view(*features.shape[:-1], len(self.counts))

    def loss(
        self,
        features_ND: Tensor,
        target_N: Tensor,
        options: LossOptions = PLAIN_LOSS,
        *,
        rows_N: Tensor | None = None,
    ) -> OutputLoss:
        """Cross entropy of the target words.

        Args:
            features_ND: h; one for each target, or those that ``rows_N`` points to.
            target_N: the words.
            options: without label smoothing and z-loss.
            rows_N: which of the features each target belongs to, not falling; None for its own.

        Raises:
            ValueError: for label smoothing or z-loss, which need the scores of all words.
        """
        check_plain(options, "a tree of words")
        if rows_N is None:
            rows_N = torch.arange(len(target_N), device=target_N.device)
        chunks = max(1, math.ceil(len(features_ND) / ROWS))
        firsts = torch.arange(0, chunks * ROWS, ROWS, device=rows_N.device)
        sizes = torch.bincount(torch.bucketize(rows_N, firsts, right=True) - 1, minlength=chunks).tolist()
        parts = zip(features_ND.split(ROWS) if len(features_ND) else [features_ND], firsts, strict=True)
        pairs = zip(target_N.split(sizes), rows_N.split(sizes), strict=True)
        losses_N = torch.cat(
            [
                self._path_losses(features, target, rows - first)
                for (features, first), (target, rows) in zip(parts, pairs, strict=True)
            ]
        )
        loss = losses_N.sum() if options.reduce else losses_N
        return OutputLoss(loss, loss.detach())

    def _path_losses(self, features_ND: Tensor, target_N: Tensor, rows_N: Tensor) -> Tensor:
        paths_NL, signs_NL = self.paths[target_N], self.signs[target_N]
        nodes_U, places = distinct(paths_NL.flatten(), len(self.nodes))
        rows_UD = F.embedding(nodes_U, self.nodes, sparse=self.sparse_gradients)
        products_NU = features_ND @ rows_UD.t()
        wanted_NL = rows_N.unsqueeze(1) * len(nodes_U) + places.view(paths_NL.shape)
        scores_NL = products_NU.flatten()[wanted_NL].to(torch.promote_types(products_NU.dtype, torch.float32))
        return F.softplus(-signs_NL * scores_NL).masked_fill(signs_NL.eq(0), 0.0).sum(1)

    def log_prob(self, features_ND: Tensor, target_N: Tensor) -> Tensor:
        """Logarithms of the probabilities of given words, (N,)."""
        return -self.loss(features_ND, target_N, LossOptions(reduce=False)).loss

    def tables(self) -> dict[str, SharedEmbedding]:
        """None: inner nodes are no words."""
        return {}
