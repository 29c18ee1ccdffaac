"""The shared embedding: one owner of a table, with two verbs."""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ._shapes import check_features, check_table_size, check_target
from .losses import PLAIN_LOSS, LossOptions, OutputLoss, output_loss
from .scored_rows import ScoredRows, gather_rows
from .sharing import sharing_method
from .squared_norms import squared_norms, with_squared_norms

# Smallest squared norm that is divided by: a row this short (norm 1e-3) has no direction worth keeping.
SMALLEST_SQUARED_NORM = 1e-6


class SharedEmbedding(nn.Module):
    """A table W (V, D) that turns words into vectors (``embed``) and features into word scores (``scores``).

    With n_v = ||w_v||^2, the functions of a sharing method (see ``sharing.py``) and its feature map f, the identity
    unless the method has one:

        embed(v)     = input_scale(n_v) * w_v
        scores(h)_v  = scale(n_v) * (w_v . f(h)) + offset(n_v) + bias_v

    A model shares a table by holding the same ``SharedEmbedding`` in several places. There is one tensor and nothing is
    assigned, so sharing survives deepcopy, pickling, casting, and loading with ``assign=True``.

    The padding row starts at zero and counts as having norm 1 in every method, so its score and its gradient are finite
    in half precision too. As an input it gets no gradient; as an output it gets the softmax's, like any other row.
    Called like a function, a table embeds, so that it can stand where fairseq's models have an ``nn.Embedding``.

    Args:
        num_embeddings: V, size of the dictionary.
        embedding_dim: D, width of the vectors and of the features.
        padding_idx: row of the padding symbol, from the end if below 0; None where the table holds only a part of the
            words, without it.
        method: name of a registered sharing method.
        bias: whether scores have a bias of their own for each word, as in Press & Wolf's models.
        std: standard deviation of the initial Gaussian rows; None for rows of norm about 1, which methods that divide
            by the norm get whatever is given here.
        weight: W itself, taken as it is, with no random number drawn; None makes a new one.
        embeds: whether it serves as input; without, the method's own parameters for inputs are left out.
        scores: whether it serves as output; without, the method's own parameters for outputs are left out.

    Raises:
        ValueError: if no sharing method has this name, or a size, row or weight does not fit.

    Source: Press & Wolf 2016, section 3; Liu et al. 2020, section 3.
    """

    bias: Tensor | None
    by_target = False
    loss_is_its_own = False

    def __init__(
        self,
        num_embeddings: int,
        embedding_dim: int,
        padding_idx: int | None,
        *,
        method: str = "plain",
        bias: bool = False,
        std: float | None = 0.01,
        weight: nn.Parameter | None = None,
        embeds: bool = True,
        scores: bool = True,
    ):
        super().__init__()
        check_table_size(num_embeddings, embedding_dim, padding_idx, weight)
        self.num_embeddings = num_embeddings
        self.embedding_dim = embedding_dim
        self.padding_idx = None if padding_idx is None else padding_idx % num_embeddings
        self.method = method
        # Whether the gradient of rows that are looked up is a sparse tensor; ``scores`` and ``loss`` make a dense one.
        self.sparse_gradients = False
        functions = sharing_method(method)
        self.weight: Tensor = nn.Parameter(torch.empty(num_embeddings, embedding_dim)) if weight is None else weight
        self.register_parameter("bias", nn.Parameter(torch.zeros(num_embeddings)) if bias else None)
        self.feature_map = functions.feature_map(embedding_dim) if functions.feature_map and scores else None
        initial = functions.initial_parameters(num_embeddings, embedding_dim, embeds=embeds, scores=scores)
        # An empty dictionary of parameters would show in every table.
        self.method_parameters: Any = nn.ParameterDict(initial) if initial else {}
        # None where nothing is kept, else (key, scale, offset), () before the first. Not buffers: they stay as exact as
        # they are after `.half()`.
        self._kept: tuple | None = None
        if weight is None:
            self.reset_parameters(std)

    def reset_parameters(self, std: float | None) -> None:
        """Draws the rows from N(0, std^2) (see the class for the exceptions) and sets padding row and bias to zero."""
        if std is None or sharing_method(self.method).divides_by_norm:
            draw_norm_one_(self.weight)
        else:
            nn.init.normal_(self.weight, std=std)
        self._reset_padding()
        if self.bias is not None:
            nn.init.zeros_(self.bias)

    def reset_rows_of_norm_one(self) -> None:
        """Draws the rows anew, uniformly and with norm about 1, if the method divides by norms; padding is zero."""
        if sharing_method(self.method).divides_by_norm:
            limit = (3.0 / self.embedding_dim) ** 0.5
            nn.init.uniform_(self.weight, -limit, limit)
        self._reset_padding()

    def _reset_padding(self) -> None:
        if self.padding_idx is not None:
            nn.init.zeros_(self.weight[self.padding_idx])

    def parameters_of_method(self) -> list[nn.Parameter]:
        """The method's own parameters and those of its feature map, which begin as the method says."""
        return [*self.method_parameters.values(), *(self.feature_map.parameters() if self.feature_map else ())]

    def embed(self, tokens: Tensor) -> Tensor:
        """Vectors of words.

        Args:
            tokens: indices in [0, V), of any shape.

        Returns:
            Vectors of shape (*tokens.shape, D).
        """
        vectors = F.embedding(tokens, self.weight, self.padding_idx, sparse=self.sparse_gradients)
        method = sharing_method(self.method)
        if method.input_scale is None:
            return vectors
        # A number for all words, or one for each of the table's.
        factor = method.input_factor(self._bounded(squared_norms(vectors), tokens), self._own_rows(tokens))
        return vectors * factor.unsqueeze(-1).to(vectors.dtype)

    def forward(self, tokens: Tensor) -> Tensor:
        """``embed``."""
        return self.embed(tokens)

    def scores(self, features: Tensor) -> Tensor:
        """Scores of all words, not normalised.

        Args:
            features: h of shape (*, D).

        Returns:
            A fresh tensor of shape (*, V).

        Raises:
            ValueError: for features of another width.
        """
        # As a matrix: where nothing needs a gradient, torch multiplies a transposed (B, 1, D) row by row.
        flat = self.mapped(features).reshape(-1, self.embedding_dim)
        shape = (*features.shape[:-1], self.num_embeddings)
        if not sharing_method(self.method).uses_norms:
            return F.linear(flat, self.weight, self.bias).view(shape)
        scale, offset = self._scale_and_offset()
        scores = F.linear(flat, self.weight)
        dtype = scores.dtype
        # In float32, whose range 1/n needs.
        if scale is not None:
            scores = scores * scale
        if self.bias is not None:
            offset = self.bias if offset is None else offset + self.bias
        if offset is not None:
            scores = scores + offset
        return scores.to(dtype).view(shape)

    def loss(
        self,
        features_ND: Tensor,
        target_N: Tensor,
        options: LossOptions = PLAIN_LOSS,
        never_V: Tensor | None = None,
    ) -> OutputLoss:
        """Cross entropy of ``scores(features)``, summed over words, without holding the scores (see ``output_loss``).

        Args:
            features_ND: one feature per predicted word.
            target_N: the words.
            options: label smoothing, z-loss, and whether to sum.
            never_V: where words have no probability, whatever their score.

        Raises:
            ValueError: for label smoothing with ``never_V``, which would give these words a part of the target.
        """
        if never_V is not None and options.label_smoothing:
            raise ValueError(
                "--label-smoothing: needs 0 where words have no probability (never_V); got "
                f"{options.label_smoothing}. Leave it out."
            )
        method, weight, scale, offset = sharing_method(self.method), self.weight, None, None
        if method.uses_norms:
            weight, norms = with_squared_norms(weight)
            scale, offset = self._norm_terms(self._bounded(norms, self._words()), self.method_parameters)
        if never_V is not None:
            offset = torch.zeros_like(never_V, dtype=torch.float32) if offset is None else offset
            offset = offset.masked_fill(never_V, -torch.inf)
        features_ND = self.mapped(features_ND)
        return output_loss(features_ND, weight, target_N, scale=scale, offset=offset, bias=self.bias, options=options)

    def log_prob(self, features_ND: Tensor, target_N: Tensor) -> Tensor:
        """Logarithms of the probabilities of given words (N,), without the scores of all in memory."""
        return -self.loss(features_ND, target_N, LossOptions(reduce=False)).loss

    def mapped(self, features: Tensor) -> Tensor:
        """f(h): what meets the rows; (*, D) -> (*, D).

        Raises:
            ValueError: for features of another width.
        """
        check_features(features, self.embedding_dim)
        if self.feature_map is None:
            return features
        return check_features(self.feature_map(features), self.embedding_dim, name=f"feature map of {self.method!r}")

    def rows(self, words: Tensor) -> ScoredRows:
        """What the scores of given words (K,) are made of; the norms of other words are not computed."""
        bias = None if self.bias is None else gather_rows(self.bias.unsqueeze(1), words).squeeze(1)
        return self.scored(
            gather_rows(self.weight, words, sparse=self.sparse_gradients).to(self.weight.dtype), words, bias
        )

    def scored(self, rows: Tensor, words: Tensor, bias: Tensor | None) -> ScoredRows:
        """``rows``, for those who have taken them from the table.

        Args:
            rows: w (K, D) of the words, from the table.
            words: their indices (K,).
            bias: theirs (K,); None where the table has none.
        """
        scale, offset = None, None
        if sharing_method(self.method).uses_norms:
            scale, offset = self._norm_terms(self._bounded(squared_norms(rows), words), self._own_rows(words))
        if bias is not None:
            offset = bias if offset is None else offset + bias
        return ScoredRows(rows, scale, offset)

    def raw_scores(self, features_ND: Tensor, target_N: Tensor) -> Tensor:
        """Scores of given words (N,), not normalised, at the cost of these words alone."""
        check_target(target_N, len(features_ND), self.num_embeddings)
        return self.rows(target_N).scores_one_by_one(self.mapped(features_ND))

    def start_bias(self, log_prob_V: Tensor | None) -> None:
        """Sets the output bias to logarithms of probabilities, or to 0; nothing where there is none."""
        if self.bias is not None:
            with torch.no_grad():
                self.bias.copy_(torch.zeros_like(self.bias) if log_prob_V is None else log_prob_V)

    def squared_norms(self) -> Tensor:
        """n_v = ||w_v||^2, (V,), at least ``SMALLEST_SQUARED_NORM``, 1 for the padding row.

        In float32 (float64 of a float64 table), or where that overflows in float64.
        """
        return self._bounded(squared_norms(self.weight), self._words())

    def tables(self) -> dict[str, "SharedEmbedding"]:
        """The tables that words are scored by, here one, by the name of their words."""
        return {"words": self}

    def _words(self) -> Tensor:
        return torch.arange(self.num_embeddings, device=self.weight.device)

    def _bounded(self, norms: Tensor, words: Tensor) -> Tensor:
        """n of the words, given their rows' squared norms: away from 0."""
        # `masked_fill` and `clamp` both pass a zero gradient to what they replace, so 1/0 never enters the graph.
        if self.padding_idx is not None:
            norms = norms.masked_fill(words.eq(self.padding_idx), 1.0)
        return norms.clamp(min=SMALLEST_SQUARED_NORM)

    def _own_rows(self, tokens: Tensor) -> dict[str, Tensor]:
        """The method's parameters, of those with a row a word the rows of these words."""
        return {
            name: each[tokens] if each.dim() and len(each) == self.num_embeddings else each
            for name, each in self.method_parameters.items()
        }

    def _scale_and_offset(self) -> tuple[Tensor | None, Tensor | None]:
        """Scale (V,) and offset (V,), kept from call to call inside ``keep_norms``."""
        read = (self.weight, *self.method_parameters.values())
        # An inference tensor counts no versions.
        if self._kept is None or torch.is_grad_enabled() or any(each.is_inference() for each in read):
            return self._norm_terms(self.squared_norms(), self.method_parameters)
        key = [(each._version, each.data_ptr(), each.dtype, each.device) for each in read]
        if not self._kept or self._kept[0] != key:
            self._kept = (key, *self._norm_terms(self.squared_norms(), self.method_parameters))
        return self._kept[1:]

    def _norm_terms(self, n: Tensor, own: Any) -> tuple[Tensor | None, Tensor | None]:
        """Scale and offset of the method in float32 (float64 for a float64 table), one number each for each n."""
        exact = torch.promote_types(self.weight.dtype, torch.float32)
        terms = sharing_method(self.method).score_terms(n, own)
        scale, offset = (None if term is None else term.expand_as(n).to(exact) for term in terms)
        return scale, offset

    def keep_norms(self, keep: bool = True) -> None:
        """From now on computes what comes of the norms once, for as long as the weights stay as they are, or ends that.

        For decoding, where gradients are off. What writes through ``weight.data`` meanwhile is not seen; ``train()``
        ends it.
        """
        self._kept = () if keep else None

    def make_generation_fast_(self, **_: Any) -> None:
        """fairseq's commands call this on a model that they will only decode with: ``keep_norms``."""
        self.keep_norms()

    def train(self, mode: bool = True) -> "SharedEmbedding":
        if mode:
            self.keep_norms(False)
        return super().train(mode)

    def extra_repr(self) -> str:
        return f"{self.num_embeddings}, {self.embedding_dim}, method={self.method}, bias={self.bias is not None}"


def draw_norm_one_(rows: Tensor) -> Tensor:
    """Fills rows (*, D) in place from N(0, 1/D), so that each has a norm of about 1."""
    return nn.init.normal_(rows, std=rows.size(-1) ** -0.5)
