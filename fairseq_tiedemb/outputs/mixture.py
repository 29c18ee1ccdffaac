"""The mixture of softmaxes over one table."""

from torch import Tensor, nn

from .._shapes import check_features, check_pairs
from ..embedding import SharedEmbedding
from ..head import Head, log_prob_by_loss
from ..losses import PLAIN_LOSS, LossOptions, OutputLoss
from ..precision import exact


class Mixture(Head):
    """A mixture of K softmaxes over one table, whose features and weights are functions of the features.

        p(v | h) = sum_k pi_k softmax(scores(h_k))_v        h_k = tanh(L_k h + b_k)        pi = softmax(G h)

    The logarithms of p have a higher rank than D, which bounds those of one softmax. The loss holds the logits of a few
    tokens at a time and takes K times as long as one softmax's. Any sharing method fits the table.

    Source: Yang et al. 2018, section 2.4.
    """

    flag = "--output-layer mixture"
    refuses = ("z_loss", "augmented_loss")
    table: SharedEmbedding

    def __init__(self, table: SharedEmbedding, mixtures: int):
        super().__init__(table)
        self.mixtures = mixtures
        self.latent = nn.Linear(table.embedding_dim, mixtures * table.embedding_dim)
        self.prior = nn.Linear(table.embedding_dim, mixtures, bias=False)
        nn.init.zeros_(self.latent.bias)

    def parts(self, features: Tensor) -> tuple[Tensor, Tensor]:
        """h_k (*, K, D) and log pi (*, K) of features (*, D); the latter in float32 or more precise."""
        check_features(features, self.table.embedding_dim)
        log_prior = exact(self.prior(features)).log_softmax(-1)
        return self.latent(features).tanh().unflatten(-1, (self.mixtures, -1)), log_prior

    def scores(self, features: Tensor) -> Tensor:
        """Log-probabilities of the whole vocabulary, in float32 or more precise: (*, D) -> (*, V)."""
        of_parts, log_prior = self.parts(features)
        scores = self.table.scores(of_parts)
        return (scores.to(log_prior.dtype).log_softmax(-1) + log_prior.unsqueeze(-1)).logsumexp(-2)

    def loss(self, features_ND: Tensor, target_N: Tensor, options: LossOptions = PLAIN_LOSS) -> OutputLoss:
        """Cross entropy, with label smoothing; raises ValueError for z-loss and augmented loss."""
        self.check_options(options)
        check_pairs(features_ND, target_N, self.table.num_embeddings)
        features_NKD, log_prior_NK = self.parts(features_ND)
        return self.table.loss(features_NKD.flatten(0, 1), target_N, options, log_prior_NK=log_prior_NK)

    log_prob = log_prob_by_loss

    def start_bias(self, log_prob_V: Tensor | None) -> None:
        nn.init.zeros_(self.latent.bias)
        super().start_bias(log_prob_V)
