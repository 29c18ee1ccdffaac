"""Feed-forward n-gram language models: Bengio et al. 2003, and variants with a deep output and weight tying."""

from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, Optional

import torch
from fairseq.dataclass import ChoiceEnum
from fairseq.models import register_model
from torch import Tensor, nn

from ..checkpoints.meaning import IN_FEEDFORWARD_LM, Choice
from ..modules.feedforward import ACTIVATIONS, FeedForwardStack
from ..option_checks import Range, option
from ..plan import TYING, Family, Plan, Settings, Widths
from ._options import StreamLMConfig, own_dropout, probability, size
from ._parts import dropouts
from ._recipe import register_preset, training_options, with_sizes
from ._stream_decoder import StreamDecoder
from ._stream_lm import StreamLM
from ._tables import Tables

LINEAR = "linear"
SKIP = "skip_connections"


@dataclass
class FeedForwardOptions(StreamLMConfig):
    """Options of feed-forward language models, named as in fairseq's ``lstm_lm`` where it has them."""

    ngram_order: int = option(
        5, "n: a word is predicted from the n - 1 words before it", needs=Range("2 or more", "5, say", at_least=2)
    )
    decoder_embed_dim: int = size(100, "embedding dimension")
    decoder_hidden_size: int = size(200, "width of a hidden layer")
    decoder_layers: int = size(1, "number of hidden layers")
    activation_fn: ChoiceEnum(list(ACTIVATIONS)) = option(  # type: ignore[valid-type]
        "tanh", "activation of the hidden layers"
    )
    skip_connections: bool = option(
        False, "the output layer also reads the context's embeddings, beside the last hidden layer"
    )
    deep_output: ChoiceEnum(["none", LINEAR, *ACTIVATIONS]) = option(  # type: ignore[valid-type]
        "none",
        "activation of a further layer, as wide as the embeddings, before the output embedding; linear: the P of "
        "--projection-regularization",
    )
    dropout: float = probability(0.0, "default of the other dropout probabilities")
    decoder_dropout_in: Optional[float] = own_dropout("of the context's embeddings")
    decoder_dropout_out: Optional[float] = own_dropout("of the hidden layers' outputs")


def _widths(settings: Settings) -> Widths:
    width, features = settings("decoder_embed_dim"), settings("decoder_hidden_size")
    if settings.on(SKIP):
        features += (settings("ngram_order") - 1) * width
    return Widths(width, width if str(settings("deep_output")) in ACTIVATIONS else features, projected=width)


P_AND_BIAS = ("projection", "projection_bias")
# With --skip-connections features are always wider than the embeddings.
UNEQUAL = (
    "a deep output, or --decoder-embed-dim equal to --decoder-hidden-size without --skip-connections",
    f"--deep-output {LINEAR}",
)


FeedForwardLMConfig = with_sizes(FeedForwardOptions, "feedforward_lm")


class FeedForwardDecoder(StreamDecoder):
    """Decoder over a window: embeddings of the n - 1 previous tokens, fully connected layers, output layer.

        x_t = [e(w_{t-n+1}); ...; e(w_{t-1})];    features_t = deep output(stack(x_t))

    A text is preceded by n - 1 ``</s>``. The state carried along a stream is the last n - 2 input tokens of each row,
    (1, B, n - 2), int64; the batch's own first column follows them. ``order`` is n, 2 or more. ``deep_output`` is a
    nonlinear one; a linear one is the output layer's P.

    Source: Bengio et al. 2003, section 2.
    """

    def __init__(
        self, dictionary: Any, tables: Tables, stack: FeedForwardStack, *, order: int, deep_output: nn.Module | None
    ):
        super().__init__(dictionary, tables)
        self.stack = stack
        self.projection = tables.output.projection
        self.order = order
        self.deep_output = deep_output

    def features(self, prev_output_tokens: Tensor, incremental_state: Any, stream_position: int | None) -> Tensor:
        """Features (B, T, D); with an incremental state only the last column (B, 1, D). See ``forward``."""
        words = self._with_context(prev_output_tokens, stream_position)
        if incremental_state is not None:
            words = words[:, 1 - self.order :]
        # One lookup of all contexts and one product: faster than windows over single embeddings, which are copied, and
        # than one product per context position, whose sums are copied.
        features = self.stack(self.embed_tokens(words.unfold(1, self.order - 1, 1)).flatten(2))
        return features if self.deep_output is None else self.deep_output(features)

    def _with_context(self, tokens_BT: Tensor, stream_position: int | None) -> Tensor:
        """Tokens with the n - 2 tokens before them, (B, n - 2 + T)."""
        state = tokens_BT.new_full((1, len(tokens_BT), self.order - 2), self.dictionary.eos())
        if stream_position is None:
            leading = tokens_BT.eq(self.dictionary.pad()).cummin(1).values
            return torch.cat((state[0], tokens_BT.masked_fill(leading, self.dictionary.eos())), 1)
        state = self.streams[self.training].at(stream_position, state)
        words = torch.cat((state[0], tokens_BT), 1)
        length = tokens_BT.size(1)
        self.carry(stream_position + length, words[:, length:].unsqueeze(0).contiguous())
        return words


@register_model("feedforward_lm", dataclass=FeedForwardLMConfig)
class FeedForwardLM(StreamLM):
    """Feed-forward language model, untied, with a linear deep output.

    Parameters with n-grams of n tokens, embedding width m, and one hidden layer of width h: Vm + (n-1)mh + h, plus the
    output's V(h + 1) plain, V(h + (n-1)m + 1) with skip connections, hm + m + V(m + 1) with a deep output. A tied deep
    output has Vm fewer. Skip connections to a deep output add (n-1)m^2.

    Source: Bengio et al. 2003, section 2; deep output: Pascanu et al. 2014, section 3.3; tied: Press & Wolf 2016.
    """

    family = Family(
        _widths, UNEQUAL, implies=lambda settings: P_AND_BIAS if str(settings("deep_output")) == LINEAR else ()
    )
    recipe: ClassVar[dict[str, Any]] = training_options("feedforward_lm")
    meaning: ClassVar[tuple[Choice, ...]] = IN_FEEDFORWARD_LM

    @classmethod
    def build_decoder(cls, cfg: Any, words: Any, plan: Plan, tables: Tables) -> FeedForwardDecoder:
        dropout_in, dropout_out = dropouts(cfg, "decoder", cls.__name__)
        stack = FeedForwardStack(
            (cfg.ngram_order - 1) * cfg.decoder_embed_dim,
            cfg.decoder_hidden_size,
            cfg.decoder_layers,
            activation=str(cfg.activation_fn),
            skip=Settings(cfg, cls.family, cls.turned_on).on(SKIP),
            dropout_in=dropout_in,
            dropout_out=dropout_out,
        )
        deep = ACTIVATIONS.get(str(cfg.deep_output))
        output = None if deep is None else nn.Sequential(nn.Linear(stack.output_size, plan.features), deep())
        return FeedForwardDecoder(words, tables, stack, order=cfg.ngram_order, deep_output=output)


# Sizes and training, and their sources: config/NAME.yaml.
preset = partial(register_preset, FeedForwardLM, FeedForwardOptions)
preset("feedforward_lm_wt", "Feed-forward language model with weight tying and a linear deep output.", TYING)
preset("bengio_lm", "Bengio et al. 2003: skip connections from the context's embeddings to the output.", SKIP)
