"""The joint space: words and features meet in a space of their own, to which maps lead from both."""

from torch import Tensor, nn

from .._shapes import check_features
from ..embedding import SharedEmbedding
from ..head import Head, log_prob_by_loss
from ..losses import PLAIN_LOSS, LossOptions, OutputLoss, output_loss
from ..option_checks import flag_of
from ..sharing import sharing_method


class JointSpace(Head):
    """Scores words by products in a space of J dimensions, to which learned maps lead from table and features.

        z_v = tanh(U w_v + b) . tanh(V h + c) + bias_v

    So tied words differ as outputs from what they are as inputs, by U, as features do from inputs by P. An update
    costs V D J more than the softmax's. The table is shared plainly.

    Args:
        table: output embedding, owned by another module.
        width: J.

    Raises:
        ValueError: for another sharing method than plain, or scales or a cap of logits, which U would undo.

    Source: Pappas et al. 2018, in the form of their code.
    """

    flag = "--output-layer joint"
    refuses = ("augmented_loss",)
    table: SharedEmbedding

    def __init__(self, table: SharedEmbedding, width: int):
        super().__init__(table)
        if not sharing_method(table.method).is_plain:
            needs = f"plain with {self.flag}, whose map of the words follows"
            raise ValueError(f"--sharing-method: needs {needs}; got {table.method}. Use plain.")
        for name, value in table.constants.changed().items():
            if name.startswith("logit"):
                needs = f"another output layer than {self.flag}"
                raise ValueError(f"{flag_of(name)}: needs {needs}; got {value}. Leave it out.")
        self.of_words = nn.Linear(table.embedding_dim, width)
        self.of_features = nn.Linear(table.embedding_dim, width)

    def words(self) -> Tensor:
        """tanh(U w + b) of all words (V, J)."""
        return self.of_words(self.table.weight).tanh()

    def mapped(self, features: Tensor) -> Tensor:
        """tanh(V h + c): (*, D) -> (*, J)."""
        return self.of_features(check_features(features, self.table.embedding_dim)).tanh()

    def scores(self, features: Tensor) -> Tensor:
        return nn.functional.linear(self.mapped(features), self.words(), self.table.bias)

    def loss(self, features_ND: Tensor, target_N: Tensor, options: LossOptions = PLAIN_LOSS) -> OutputLoss:
        """Cross entropy, with label smoothing and z-loss, without the N x V logits in memory."""
        self.check_options(options)
        return output_loss(self.mapped(features_ND), self.words(), target_N, bias=self.table.bias, options=options)

    log_prob = log_prob_by_loss

    def start_bias(self, log_prob_V: Tensor | None) -> None:
        nn.init.zeros_(self.of_features.bias)
        nn.init.zeros_(self.of_words.bias)
        super().start_bias(log_prob_V)
