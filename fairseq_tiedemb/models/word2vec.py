"""word2vec: skip-gram and CBOW, with two tables or one."""

from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, Optional

import torch
from fairseq.models import BaseFairseqModel
from torch import Tensor, nn

from ..embedding import SharedEmbedding
from ..losses import PLAIN_LOSS, LossOptions
from ..option_checks import option
from ..outputs import SOFTMAX, OutputLayer
from ..outputs.negative_sampling import NegativeSampling
from ..outputs.ours import NegativeSamplingConfig
from ..plan import Family, Widths
from ..training.extensions import extensions_of
from ._options import TyingConfig, size
from ._recipe import register_preset
from ._tables import build_tables
from ._tied_model import TiedModel

NEGATIVE_SAMPLING = "negative-sampling"


@dataclass
class Word2VecConfig(NegativeSamplingConfig, TyingConfig):
    """Options of word2vec models."""

    decoder_embed_dim: int = size(100, "embedding dimension")
    output_layer: str = option(
        NEGATIVE_SAMPLING,
        "training loss: negative-sampling, softmax (over the vocabulary) or tree (hierarchical softmax "
        "over Huffman's tree, which has no table to share)",
    )
    word2vec_output: Optional[str] = option(None, "--output-layer under its former names negative, full and tree")


class WordVectors(nn.Module):
    """Holds C, and an output layer with W' or the tree, under the names of a language model's decoder."""

    def __init__(self, dictionary: Any, embed_tokens: SharedEmbedding, output: OutputLayer):
        super().__init__()
        self.dictionary = dictionary
        self.embed_tokens = embed_tokens
        self.output = output


class Word2Vec(TiedModel, BaseFairseqModel):
    """Word embeddings trained to predict words from their neighbours, with one table or two.

    With input vectors C, output vectors W' and the words in the window of centre t, this minimises over the text

        skip-gram: sum over contexts o of  L(o, c_t)
        CBOW:      L(t, mean over contexts o of c_o)

    L(w, h) is the cross entropy of the softmax over W' h or of the tree, or negative sampling. With weight tying C and
    W' are one table S, whose rows get the gradients of both roles: a pair of equal words lengthens the word's row, and
    words that rarely predict themselves stay short (Goldberg & Levy 2014).

    Gradients are those of this loss; word2vec.c and gensim differ. Their CBOW gives every context the whole error of
    the mean. Their skip-gram swaps centre and context, which gives the same pairs. They update after every pair. Here
    skip-gram with negative sampling, plain tables, one process and ``row_sgd`` learns a batch in ten steps
    (``learn_in_steps``), which keeps the balance of the two tables; fairseq's ``gnorm`` is 0 then. Otherwise, and with
    ``--clip-norm`` or ``--update-freq``, the gradients of a batch are summed, and rows clipped to ``--clip-row-norm``.

    The input table starts uniform in +-1 / (2 D), also if tied, and the output table at 0. Methods that divide by norms
    start with rows of norm about 1.

    Source: Mikolov et al. 2013 ("Efficient estimation"; "Distributed representations"); Press & Wolf 2016, table 2.
    """

    family = Family(
        lambda given: Widths(*[given("decoder_embed_dim")] * 3), bias=False, heads=(NEGATIVE_SAMPLING, SOFTMAX, "tree")
    )
    predicts_centre: ClassVar[bool] = False  # True for CBOW
    rate_of_steps: float | None = None

    def __init__(self, decoder: WordVectors):
        super().__init__()
        self.decoder = decoder

    @classmethod
    def build_model(cls, cfg: Any, task: Any) -> "Word2Vec":
        """Builds the model; ValueError as of ``plan_of``, and for a task without word counts."""
        if extensions_of(task).word_counts is None:
            needs = "--task word_pairs, which counts words"
            raise ValueError(f"--arch {cfg._name}: needs {needs}; got {type(task).__name__}. Use --task word_pairs.")
        plan, words = cls.plan_of(cfg, task), task.source_dictionary
        tables = build_tables(plan, words, lambda: torch.from_numpy(task.word_counts))
        model = cls(WordVectors(words, tables.inputs["input"], tables.output))
        model.reset_parameters()
        model.start(plan, cfg._name or cls.__name__)
        return model

    def check_training(self, criterion: Any, cfg: Any) -> None:
        """Raises ValueError if the criterion ignores the model's loss, or the model ignores an option in ``cfg``."""
        if not extensions_of(criterion).takes_the_models_loss:
            needs = "word_pairs with a model of word2vec's family"
            got = f"{type(criterion).__name__}, which needs the logits of all words"
            raise ValueError(f"--criterion: needs {needs}; got {got}. Use --criterion word_pairs.")
        super().check_training(criterion, cfg)

    def reset_parameters(self) -> None:
        """Draws the tables as word2vec.c does; see the class."""
        table, output = self.decoder.embed_tokens, self.output.table
        for rows in (output, table):
            if isinstance(rows, SharedEmbedding):
                limit = 0.5 / rows.embedding_dim if rows is table else 0.0
                nn.init.uniform_(rows.weight, -limit, limit)
                rows.reset_rows_of_norm_one()

    def set_sparse_gradients(self, sparse: bool, rate: float | None = None) -> None:
        """Chooses whether gradients hold only the rows of a batch, for ``row_sgd``.

        With a ``rate``, the update's learning rate, skip-gram with negative sampling of plain tables has no gradient:
        ``forward`` with targets learns a batch in small steps. None is for the gradient of the batch.
        """
        inputs, head = self.decoder.embed_tokens, self.output.head
        for module in (inputs, self.output.table):
            module.sparse_gradients = sparse
        steps = sparse and not self.predicts_centre and isinstance(head, NegativeSampling)
        self.rate_of_steps = rate if steps and head.learns_in_steps(inputs) else None

    def extract_features(  # type: ignore[override]
        self, src_tokens: Tensor, centres: Tensor | None = None
    ) -> tuple[Tensor, dict[str, Any]]:
        """Features that predict the targets: vectors of the centres, or for CBOW means of the contexts' vectors.

        The arguments are those of ``forward``.
        """
        vectors = self.decoder.embed_tokens(src_tokens)
        if not self.predicts_centre or centres is None:
            return vectors, {}
        counts = torch.bincount(centres)
        sums = vectors.new_zeros(len(counts), vectors.size(1)).index_add(0, centres, vectors)
        return sums / counts.unsqueeze(1), {}

    def forward(  # type: ignore[override]
        self,
        src_tokens: Tensor,
        centres: Tensor | None = None,
        target: Tensor | None = None,
        loss_options: LossOptions = PLAIN_LOSS,
    ) -> Any:
        """Logits of the vocabulary for each centre (n, V), or the loss of ``target``.

        Args:
            src_tokens: words (n,); for CBOW all contexts (N,).
            centres: position of each pair's centre (N,), not falling.
            target: target words: the contexts (N,), or for CBOW the centres (n,).
            loss_options: options of the loss.
        """
        in_steps = self.rate_of_steps is not None and self.training and torch.is_grad_enabled()
        if in_steps and target is not None and loss_options == PLAIN_LOSS:
            inputs, head = self.decoder.embed_tokens, self.output.head
            return head.loss_in_steps(inputs, src_tokens, target, centres, self.rate_of_steps)
        features = self.extract_features(src_tokens, centres)[0]
        if target is None:
            return self.output.scores(features)
        if self.predicts_centre or centres is None:
            return self.output.loss(features, target, loss_options)
        return self.output.loss_of_sets(features, target, centres, loss_options)

    def log_prob(self, target: Tensor, **net_input: Any) -> Tensor:
        """Log-probabilities of the target words; raises ValueError for negative sampling, which defines none."""
        features, centres = self.extract_features(**net_input)[0], net_input.get("centres")
        if centres is not None and not self.predicts_centre:
            features = features.index_select(0, centres)
        return self.output.log_prob(features, target)

    def upgrade_state_dict_named(self, state_dict: dict[str, Any], name: str) -> None:
        """Moves the counts of negative sampling from their place in checkpoints before 0.1.10."""
        decoder = f"{name}.decoder" if name else "decoder"
        if f"{decoder}.negatives.counts" in state_dict:
            state_dict[f"{decoder}.output.over.counts"] = state_dict.pop(f"{decoder}.negatives.counts")
        super().upgrade_state_dict_named(state_dict, name)


class CBOW(Word2Vec):
    """Predicts a centre from the mean of its contexts."""

    predicts_centre = True


preset = partial(register_preset, config=Word2VecConfig)
preset(Word2Vec, name="word2vec_skipgram", about="Skip-gram: each context is predicted by its centre.")
preset(CBOW, name="word2vec_cbow", about="CBOW: each centre is predicted by the mean of its contexts.")
