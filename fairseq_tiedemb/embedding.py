"""The shared embedding: one owner of a table, with two verbs, and the roles that share it."""

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .output_loss import OutputLoss, output_loss
from .sharing import sharing_method

# Smallest squared norm that is divided by: a row this short (norm 1e-3) has no direction worth keeping.
SMALLEST_SQUARED_NORM = 1e-6


class SharedEmbedding(nn.Module):
    """A table W (V, D) that turns words into vectors (``embed``) and features into word scores (``scores``).

    With n_v = ||w_v||^2 and the three functions of a sharing method (see ``sharing.py``):

        embed(v)     = input_scale(n_v) * w_v
        scores(h)_v  = scale(n_v) * (w_v . h) + offset(n_v) + bias_v

    A model shares a table by holding the same ``SharedEmbedding`` in several places. There is one tensor and nothing is
    assigned, so sharing survives deepcopy, pickling, casting, and loading with ``assign=True``.

    The padding row starts at zero and counts as having norm 1 in every method, so its score and its gradient are finite
    in half precision too. As an input it gets no gradient; as an output it gets the softmax's, like any other row.
    Called like a function, a table embeds, so that it can stand where fairseq's models have an ``nn.Embedding``.

    Args:
        num_embeddings: V, size of the dictionary.
        embedding_dim: D, width of the vectors and of the features.
        padding_idx: row of the padding symbol; None where the table holds only a part of the words, without it.
        method: name of a registered sharing method.
        bias: whether scores have a bias of their own for each word, as in Press & Wolf's models.
        std: standard deviation of the initial Gaussian rows; D^-0.5 (rows of norm about 1) for methods that divide by
            the norm, whatever is given here.
        weight: W itself, taken as it is, with no random number drawn; None makes a new one.

    Source: Press & Wolf 2016, section 3; Liu et al. 2020, section 3.
    """

    bias: Tensor | None

    def __init__(
        self,
        num_embeddings: int,
        embedding_dim: int,
        padding_idx: int | None,
        *,
        method: str = "plain",
        bias: bool = False,
        std: float = 0.01,
        weight: nn.Parameter | None = None,
    ):
        super().__init__()
        self.num_embeddings = num_embeddings
        self.embedding_dim = embedding_dim
        self.padding_idx = padding_idx
        self.method = method
        self.weight = nn.Parameter(torch.empty(num_embeddings, embedding_dim)) if weight is None else weight
        self.register_parameter("bias", nn.Parameter(torch.zeros(num_embeddings)) if bias else None)
        # (key, scale, offset) of the last forward without gradients. Not buffers: they are float32 after `.half()` too.
        self._cached: tuple[tuple, Tensor | None, Tensor | None] | None = None
        if weight is None:
            self.reset_parameters(std)

    def reset_parameters(self, std: float) -> None:
        """Draws the rows from N(0, std^2) (see the class for the exception) and sets padding row and bias to zero."""
        if sharing_method(self.method).divides_by_norm:
            std = self.embedding_dim**-0.5
        nn.init.normal_(self.weight, std=std)
        if self.padding_idx is not None:
            nn.init.zeros_(self.weight[self.padding_idx])
        if self.bias is not None:
            nn.init.zeros_(self.bias)

    def embed(self, tokens: Tensor) -> Tensor:
        """Vectors of words.

        Args:
            tokens: indices in [0, V), of any shape.

        Returns:
            Vectors of shape (*tokens.shape, D).
        """
        vectors = F.embedding(tokens, self.weight, self.padding_idx)
        input_scale = sharing_method(self.method).input_scale
        if input_scale is None:
            return vectors
        squared_norms = self._squared_norms(vectors, tokens)
        return vectors * input_scale(squared_norms).unsqueeze(-1).to(vectors.dtype)

    def forward(self, tokens: Tensor) -> Tensor:
        """``embed``."""
        return self.embed(tokens)

    def scores(self, features: Tensor) -> Tensor:
        """Scores of all words, not normalised.

        Args:
            features: h of shape (*, D).

        Returns:
            A fresh tensor of shape (*, V).
        """
        if not sharing_method(self.method).uses_norms:
            return F.linear(features, self.weight, self.bias)
        scale, offset = self._scale_and_offset()
        scores = F.linear(features, self.weight)
        dtype = scores.dtype
        # In float32, whose range 1/n needs.
        if scale is not None:
            scores = scores * scale
        if offset is not None:
            scores = scores + offset
        return scores.to(dtype)

    def loss(
        self, features_ND: Tensor, target_N: Tensor, *, label_smoothing: float = 0.0, z_loss: float = 0.0
    ) -> OutputLoss:
        """Cross entropy of ``scores(features)``, summed over tokens, without holding the scores (see ``output_loss``).

        Args:
            features_ND: one feature per predicted word.
            target_N: the words, none of them padding.
            label_smoothing: epsilon in [0, 1).
            z_loss: weight of (log Z)^2.
        """
        return output_loss(
            features_ND,
            self.weight,
            target_N,
            norm_terms=self._norm_terms if sharing_method(self.method).uses_norms else None,
            bias=self.bias,
            label_smoothing=label_smoothing,
            z_loss=z_loss,
        )

    def squared_norms(self) -> Tensor:
        """n_v = ||w_v||^2, (V,), at least ``SMALLEST_SQUARED_NORM``, 1 for the padding row; float32, or float64."""
        return self._squared_norms(self.weight, torch.arange(self.num_embeddings, device=self.weight.device))

    def _squared_norms(self, rows: Tensor, words: Tensor) -> Tensor:
        exact = rows.to(torch.promote_types(rows.dtype, torch.float32))
        return self._bounded(exact.square().sum(-1), words)

    def _bounded(self, squared_norms: Tensor, words: Tensor) -> Tensor:
        # `masked_fill` and `clamp` both pass a zero gradient to what they replace, so 1/0 never enters the graph.
        if self.padding_idx is not None:
            squared_norms = squared_norms.masked_fill(words.eq(self.padding_idx), 1.0)
        return squared_norms.clamp(min=SMALLEST_SQUARED_NORM)

    def _scale_and_offset(self) -> tuple[Tensor | None, Tensor | None]:
        """Scale (V,) and offset (V,), the bias in it; what comes of the norms is kept where no gradient is wanted."""
        weight = self.weight
        if not sharing_method(self.method).uses_norms:
            return None, self.bias
        if torch.is_grad_enabled() or weight.is_inference():  # an inference tensor counts no versions
            scale, offset = self._norm_terms(self.squared_norms())
        else:
            key = (weight._version, weight.data_ptr(), weight.dtype, weight.device)
            if self._cached is None or self._cached[0] != key:
                self._cached = (key, *self._norm_terms(self.squared_norms()))
            _, scale, offset = self._cached
        if self.bias is not None:
            offset = self.bias if offset is None else offset + self.bias
        return scale, offset

    def _norm_terms(self, squared_norms: Tensor) -> tuple[Tensor | None, Tensor | None]:
        """Scale and offset (V,) of the method, from squared norms (V,) of any size."""
        method = sharing_method(self.method)
        squared_norms = self._bounded(squared_norms, torch.arange(len(squared_norms), device=squared_norms.device))
        return (
            None if method.scale is None else method.scale(squared_norms),
            None if method.offset is None else method.offset(squared_norms),
        )

    def train(self, mode: bool = True) -> "SharedEmbedding":
        # fairseq's optimisers write through `p.data`, which the version counter of the key does not see.
        self._cached = None
        return super().train(mode)

    def extra_repr(self) -> str:
        return f"{self.num_embeddings}, {self.embedding_dim}, method={self.method}, bias={self.bias is not None}"


class EmbeddingRoles(NamedTuple):
    """Which table plays which part; parts that share a table hold the same object.

    Attributes:
        source: encoder input.
        target: decoder input.
        output: decoder output, with the output bias.
    """

    source: SharedEmbedding
    target: SharedEmbedding
    output: SharedEmbedding

    @property
    def sharing(self) -> str:
        """What is shared, in words."""
        if self.source is self.target is self.output:
            return "encoder input = decoder input = decoder output (three-way weight tying)"
        if self.target is self.output:
            return "decoder input = decoder output (weight tying)"
        return "nothing"


def embedding_roles(
    *,
    source_size: int,
    target_size: int,
    source_dim: int,
    target_dim: int,
    output_dim: int,
    padding_idx: int,
    share_decoder: bool,
    share_all: bool,
    method: str = "plain",
    std: float = 0.01,
) -> EmbeddingRoles:
    """Builds the tables of an encoder-decoder model; all sharing is decided here.

    ``share_all`` makes one table for all three roles (three-way weight tying), ``share_decoder`` one for the decoder's
    two (weight tying). Sizes that are shared must be equal; models check that first, with the names of their flags.

    Raises:
        ValueError: if sizes of roles that share differ.

    Source: Press & Wolf 2016, sections 3 and 4 (table 8).
    """
    sizes = {
        "source": (source_size, source_dim),
        "target": (target_size, target_dim),
        "output": (target_size, output_dim),
    }
    shared = ("source", "target", "output") if share_all else ("target", "output") if share_decoder else ()
    if len({sizes[role] for role in shared}) > 1:
        got = ", ".join(f"{role} {sizes[role]}" for role in shared)
        raise ValueError(f"shared embeddings: need one (vocabulary, width) for all roles; got {got}. Use equal sizes.")

    def table(role: str) -> SharedEmbedding:
        return SharedEmbedding(*sizes[role], padding_idx, method=method, bias=role == "output", std=std)

    output = table("output")
    target = output if "target" in shared else table("target")
    source = output if "source" in shared else table("source")
    return EmbeddingRoles(source, target, output)
