"""The shared embedding: one module owns the table and offers ``embed`` and ``scores``."""

import re
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ._shapes import check_features, check_pairs, check_table_size, check_target
from .constants import NO_CONSTANTS, Constants
from .head import Head, log_prob_by_loss
from .kept import Keeping
from .loss_options import check_unset
from .losses import PLAIN_LOSS, LossOptions, OutputLoss, output_loss
from .precision import exact_dtype
from .products import packed, product
from .scored_rows import ScoredRows, gather_rows
from .sharing import sharing_method
from .squared_norms import squared_norms, with_squared_norms

# Lower bound for squared norms in a division: a row with norm 1e-3 has no direction worth keeping.
SMALLEST_SQUARED_NORM = 1e-6
# Names of parameters that belong to a table's sharing method.
OF_METHOD = re.compile(r"(?:^|\.)(?:method_parameters|feature_map)\.")


class SharedEmbedding(Keeping, Head):
    """An embedding table W (V, D) that is both input embedding (``embed``) and output embedding (``scores``).

    With n_v = ||w_v||^2, the functions of a sharing method (see ``sharing.py``) and its feature map f, by default the
    identity:

        embed(v)     = input_scale(n_v) * w_v
        scores(h)_v  = scale(n_v) * (w_v . f(h)) + offset(n_v) + bias_v

    A model shares a table by holding one ``SharedEmbedding`` in several places. No weight is assigned to a second
    module, so sharing survives deepcopy, pickling, casting, and loading with ``assign=True``.

    The padding row starts at zero and counts as a row of norm 1 in every method, so its logit and gradient stay finite
    in half precision. As an input the padding row gets no gradient; as an output it gets the softmax's gradient like
    any row. ``forward`` is ``embed``, so the module can replace an ``nn.Embedding`` in fairseq's models.

    Args:
        num_embeddings: V, vocabulary size.
        embedding_dim: D, width of the vectors and of the features.
        padding_idx: padding row, negative to count from the end; None for a table without padding.
        method: name of a registered sharing method.
        bias: whether the logits have a bias (V,), as in Press & Wolf's models.
        std: standard deviation of the initial Gaussian rows; None for rows of norm about 1. Methods that divide by the
            norm ignore it and always start with norm 1.
        weight: existing W, used without drawing random numbers; None creates a new one.
        embeds: whether the table is an input; if not, the method's input parameters are omitted.
        scores: whether the table is an output; if not, the method's output parameters and feature map are omitted.
        constants: scales of vectors and logits, and a soft cap of logits; see ``Constants``.

    Raises:
        ValueError: if no sharing method has this name, or a size, row or weight does not fit.

    Source: Press & Wolf 2016, section 3; Liu et al. 2020, section 2.2.
    """

    flag = "--output-layer softmax"
    has_raw_scores = True
    refuses = ()
    bias: Tensor | None

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
        constants: Constants = NO_CONSTANTS,
    ):
        super().__init__()
        check_table_size(num_embeddings, embedding_dim, padding_idx, weight)
        self.num_embeddings = num_embeddings
        self.embedding_dim = embedding_dim
        self.padding_idx = None if padding_idx is None else padding_idx % num_embeddings
        self.method, self.constants, self.embeds = method, constants, embeds
        functions = sharing_method(method)
        self.weight: Tensor = nn.Parameter(torch.empty(num_embeddings, embedding_dim)) if weight is None else weight
        self.register_parameter("bias", nn.Parameter(self.weight.new_zeros(num_embeddings)) if bias else None)
        self.feature_map = functions.feature_map(embedding_dim) if functions.feature_map and scores else None
        initial = functions.initial_parameters(num_embeddings, embedding_dim, embeds=embeds, scores=scores)
        self.method_parameters: Any = nn.ParameterDict(initial) if initial else {}  # an empty one would be printed
        if weight is None:
            self._draw_rows(std)
        else:
            self.to(weight.device)

    @classmethod
    def from_module(
        cls, module: nn.Module, *, method: str = "plain", constants: Constants = NO_CONSTANTS
    ) -> "SharedEmbedding":
        """A table over the rows (V, D) of an ``nn.Embedding``, or of an ``nn.Linear`` and its bias (V,): one parameter.

        Raises:
            ValueError: for another module, even a subclass with a ``forward`` of its own, unless constants say what it
                computes; for an option of ``nn.Embedding`` that the table does not have.
        """
        is_named = isinstance(module, (nn.Embedding, nn.Linear)) and constants != NO_CONSTANTS
        if not is_named and getattr(type(module), "forward", None) not in (nn.Embedding.forward, nn.Linear.forward):
            needs = "an nn.Embedding or nn.Linear"
            raise ValueError(f"module: needs {needs}; got {type(module).__name__}. Use its weight.")
        for option in ("max_norm", "scale_grad_by_freq", "sparse"):
            if value := getattr(module, option, None):
                raise ValueError(f"module: needs an nn.Embedding without {option}; got {value}. Use its weight.")
        weight: Any = module.weight
        (size, width), padding_idx = weight.shape, getattr(module, "padding_idx", None)
        table = cls(size, width, padding_idx, method=method, weight=weight, constants=constants)
        table.bias = getattr(module, "bias", None)
        return table

    def reset_parameters(self, std: float | None) -> None:
        """Starts anew: rows from N(0, std^2), except as the class says; padding row and bias of 0; the method's own."""
        self.reset_method()
        self._draw_rows(std)

    def reset_method(self) -> None:
        """Starts parameters of the method and its feature map anew, but those that Transformers has loaded."""
        sizes = self.num_embeddings, self.embedding_dim
        with torch.device("cpu"):  # while Transformers 4 loads a model, its rows are on "meta"
            new = SharedEmbedding(*sizes, None, method=self.method, weight=nn.Parameter(torch.empty(sizes)))
        for name, own in self.named_parameters():
            if OF_METHOD.search(name) and not getattr(own, "_is_hf_initialized", False):
                own.data.copy_(new.get_parameter(name).data)

    def _draw_rows(self, std: float | None) -> None:
        if std is None or sharing_method(self.method).divides_by_norm:
            draw_norm_one_(self.weight)
        else:
            nn.init.normal_(self.weight, std=std)
        if self.padding_idx is not None:
            nn.init.zeros_(self.weight[self.padding_idx])
        if self.bias is not None:
            nn.init.zeros_(self.bias)

    def reset_rows_of_norm_one(self) -> None:
        """Draws uniform rows of norm about 1 if the method divides by norms; zeroes the padding row in any case."""
        if sharing_method(self.method).divides_by_norm:
            limit = (3.0 / self.embedding_dim) ** 0.5
            nn.init.uniform_(self.weight, -limit, limit)
        if self.padding_idx is not None:
            nn.init.zeros_(self.weight[self.padding_idx])

    @property
    def is_plain(self) -> bool:
        """Whether embeddings are the rows, and scores are products with the rows."""
        added = self.feature_map is not None or self.bias is not None
        return not (sharing_method(self.method).uses_norms or added or self.constants.changed())

    def embed(self, tokens: Tensor) -> Tensor:
        """Looks up vectors: token indices of any shape (*) -> (*, D)."""
        vectors = F.embedding(tokens, self.weight, self.padding_idx, sparse=self.sparse_gradients)
        method = sharing_method(self.method)
        if method.input_scale is not None:
            # One factor per token, or a single factor.
            factor = method.input_factor(self._bounded(squared_norms(vectors), tokens), self._own(tokens))
            vectors = (vectors * factor.unsqueeze(-1).to(vectors.dtype)).view_as(vectors)
        if vectors.requires_grad and self.constants.input_gradient_scale != 1:
            vectors.register_hook(partial(torch.mul, self.constants.input_gradient_scale))
        return vectors if self.constants.embedding_scale == 1 else vectors * self.constants.embedding_scale

    forward = embed

    def scores(self, features: Tensor) -> Tensor:
        """Logits of the whole vocabulary: features h (*, D) -> a new tensor (*, V)."""
        # Flattened, because without gradients torch multiplies a transposed (B, 1, D) row by row.
        flat = self.mapped(features).reshape(-1, self.embedding_dim)
        shape = (*features.shape[:-1], self.num_embeddings)
        scale, offset, table = self.kept(self._terms_and_table, (self.weight, *self.method_parameters.values()))
        bias_in_product = scale is None and offset is None
        scores = product(flat, table, self.bias if bias_in_product else None)
        dtype = scores.dtype
        # Scale and offset are float32: 1/n overflows half precision.
        if scale is not None:
            scores = scores * scale
        if self.bias is not None and not bias_in_product:
            offset = self.bias if offset is None else offset + self.bias
        if offset is not None:
            scores = scores + offset
        return self.constants.capped(scores).to(dtype).view(shape)

    def _terms_and_table(self, kept: bool) -> tuple[Tensor | None, Tensor | None, Tensor]:
        """Scale, offset and the table for products, packed if it is kept."""
        scale, offset = None, None
        if sharing_method(self.method).uses_norms:
            scale, offset = self._score_terms(self.squared_norms())
        return scale, offset, packed(self.weight) if kept else self.weight

    def loss(
        self,
        features_ND: Tensor,
        target_N: Tensor,
        options: LossOptions = PLAIN_LOSS,
        never_V: Tensor | None = None,
        log_prior_NK: Tensor | None = None,
    ) -> OutputLoss:
        """Cross entropy of ``scores(features)``, summed over tokens, without the N x V logits in memory.

        Every target counts, that of padding, too: leave such features out.
        ``never_V`` masks tokens whose probability is 0; with the weights of a mixture, ``log_prior_NK``, there are K
        features a token. See ``output_loss`` for the other arguments.

        Raises:
            ValueError: for label smoothing or augmented loss with ``never_V``, since they give every token probability;
                for augmented loss of a table that is no input.
        """
        self.check_options(options)
        if never_V is not None:
            check_unset(options, ("label_smoothing", "augmented_loss"), "a mask of tokens (never_V)")
            if never_V.shape != (self.num_embeddings,) or never_V.dtype != torch.bool:
                needs, got = f"{self.num_embeddings} booleans, one per token", f"{never_V.dtype} {tuple(never_V.shape)}"
                raise ValueError(f"never_V: needs {needs}; got {got}. Use a mask of the vocabulary.")
        method, weight, scale, offset = sharing_method(self.method), self.weight, None, None
        if method.uses_norms:
            weight, norms = with_squared_norms(weight)
            scale, offset = self._score_terms(self._bounded(norms))
        if never_V is not None:
            offset = torch.zeros_like(never_V, dtype=torch.float32) if offset is None else offset
            offset = offset.masked_fill(never_V, -torch.inf)
        similar_ND = None
        if options.augmented_loss:
            with torch.no_grad():
                similar_ND = self.mapped(self.embed(target_N))
        return output_loss(
            self.mapped(features_ND),
            weight,
            target_N,
            scale=scale,
            offset=offset,
            bias=self.bias,
            soft_cap=self.constants.logit_soft_cap,
            similar_ND=similar_ND,
            log_prior_NK=log_prior_NK,
            options=options,
        )

    def check_options(self, options: LossOptions) -> None:
        """Raises ValueError for augmented loss of a table that is no input, and so has no vectors of its words."""
        if options.augmented_loss and not self.embeds:
            needs, got = "one table for input and output", f"{options.augmented_loss} with an output table of its own"
            raise ValueError(f"--augmented-loss: needs {needs}; got {got}. Use --share-decoder-input-output-embed.")

    log_prob = log_prob_by_loss

    def loss_of_sets(
        self, features_nD: Tensor, target_N: Tensor, rows_N: Tensor, options: LossOptions = PLAIN_LOSS
    ) -> OutputLoss:
        """``Head.loss_of_sets`` with one log Z per feature vector; raises ValueError for loss options.

        -log p(t | h) = -log p(t_1 | h) + s_{t_1} - s_t,  with t_1 the first target of h
        """
        check_unset(options, ("label_smoothing", "z_loss", "augmented_loss"), "several target words a feature")
        check_target(target_N, len(rows_N), self.num_embeddings)
        all_N = torch.arange(len(rows_N), device=rows_N.device)
        first_n = all_N.new_zeros(len(features_nD)).scatter_reduce_(0, rows_N.long(), all_N, "amin", include_self=False)
        of_first_n = self.loss(features_nD, target_N[first_n], LossOptions(reduce=False)).loss
        scores_N = self.rows(target_N).scores_one_by_one(self.mapped(features_nD).index_select(0, rows_N))
        losses_N = of_first_n[rows_N] + scores_N[first_n][rows_N] - scores_N
        loss = losses_N.sum() if options.reduce else losses_N
        return OutputLoss(loss, loss.detach())

    def mapped(self, features: Tensor) -> Tensor:
        """Applies the feature map f and the scale of logits, (*, D) -> (*, D); raises ValueError for another width."""
        check_features(features, self.embedding_dim)
        if self.feature_map is not None:
            features = self.feature_map(features)
            check_features(features, self.embedding_dim, name=f"feature map of {self.method!r}")
        elif sharing_method(self.method).feature_map is not None:
            got = f"{self.method} with scores=False"
            raise ValueError(f"features: needs a table that scores words; got {got}. Use scores=True.")
        return features if self.constants.logit_scale == 1 else features * self.constants.logit_scale

    def rows(self, words: Tensor, known: tuple[Tensor, Tensor | None] | None = None) -> ScoredRows:
        """Rows, scales and offsets of the given tokens (K,) alone, from which ``ScoredRows`` computes logits.

        ``known`` are their rows (K, D), and their biases (K,) or None, where these are at hand.
        """
        if known is None:
            bias = None if self.bias is None else gather_rows(self.bias.unsqueeze(1), words).squeeze(1)
            rows = gather_rows(self.weight, words, sparse=self.sparse_gradients).to(self.weight.dtype)
        else:
            rows, bias = known
        scale, offset = None, None
        if sharing_method(self.method).uses_norms:
            scale, offset = self._score_terms(self._bounded(squared_norms(rows), words), words)
        if bias is not None:
            offset = bias if offset is None else offset + bias
        return ScoredRows(rows, scale, offset, self.constants)

    def raw_scores(self, features_ND: Tensor, target_N: Tensor) -> Tensor:
        """Logit of each target token (N,), computed from the target rows alone."""
        check_pairs(features_ND, target_N, self.num_embeddings)
        return self.rows(target_N).scores_one_by_one(self.mapped(features_ND))

    def start_bias(self, log_prob_V: Tensor | None) -> None:
        """Sets the output bias, if the table has one, to the given log-probabilities (V,), or to 0 for None."""
        if self.bias is not None:
            with torch.no_grad():
                self.bias.copy_(torch.zeros_like(self.bias) if log_prob_V is None else log_prob_V)

    def squared_norms(self) -> Tensor:
        """n_v = ||w_v||^2 (V,), at least ``SMALLEST_SQUARED_NORM``, and 1 for the padding row.

        In float32 or float64: see ``squared_norms.squared_norms``.
        """
        return self._bounded(squared_norms(self.weight))

    def _bounded(self, norms: Tensor, words: Tensor | None = None) -> Tensor:
        """Squared norms of all rows, or of the tokens' rows, with a lower bound, and 1 for padding."""
        # `masked_fill` and `clamp` give replaced values a zero gradient, so 1/0 never enters the graph.
        if self.padding_idx is not None:
            words = torch.arange(len(norms), device=norms.device) if words is None else words
            norms = norms.masked_fill(words.eq(self.padding_idx), 1.0)
        return norms.clamp(min=SMALLEST_SQUARED_NORM)

    def _own(self, words: Tensor | None) -> dict[str, Tensor]:
        """The method's parameters; of those with V entries, the tokens' entries."""
        return {
            name: values if words is None or values.shape[:1] != (self.num_embeddings,) else values[words]
            for name, values in self.method_parameters.items()
        }

    def _score_terms(self, n: Tensor, words: Tensor | None = None) -> tuple[Tensor | None, Tensor | None]:
        """Scale and offset of all logits, or of the tokens', from their n: in float32, or a float64 table's float64."""
        exact = exact_dtype(self.weight)
        terms = sharing_method(self.method).score_terms(n, self._own(words))
        scale, offset = (None if term is None else term.expand_as(n).to(exact) for term in terms)
        return scale, offset

    def tables(self) -> dict[str, "SharedEmbedding"]:
        return {"words": self}

    def extra_repr(self) -> str:
        return f"{self.num_embeddings}, {self.embedding_dim}, method={self.method}, bias={self.bias is not None}"


def draw_norm_one_(rows: Tensor) -> Tensor:
    """Fills rows (*, D) in place from N(0, 1/D), which gives each row a norm of about 1."""
    return nn.init.normal_(rows, std=rows.size(-1) ** -0.5)
