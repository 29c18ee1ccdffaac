"""Feed-forward n-gram language models: Bengio et al. 2003, and variants with a deep output and weight tying."""

# ruff: noqa: UP045 (fairseq's parser understands Optional[X], not X | None)

import logging
from dataclasses import dataclass, field
from functools import partial
from typing import Any, ClassVar, Optional

from fairseq.dataclass import ChoiceEnum
from fairseq.models import register_model
from fairseq.modules import FairseqDropout
from torch import nn

from ..checkpoints.meaning import IN_FEEDFORWARD_LM, Choice
from ..modules.feedforward import ACTIVATIONS, FeedForwardStack
from ..sharing import sharing_method
from ._feedforward_decoder import FeedForwardDecoder
from ._options import DROPOUT_HELP, SHARING_METHOD_HELP, check_ranges, first_given
from ._output_layer import OutputLayerConfig, build_tables, check_output_layer
from ._recipe import register_preset, training_options, with_sizes
from ._stream_lm import StreamLM

logger = logging.getLogger(__name__)

LINEAR = "linear"


@dataclass
class FeedForwardOptions(OutputLayerConfig):
    """Options of feed-forward language models, named as in fairseq's ``lstm_lm`` where it has them."""

    ngram_order: int = field(
        default=5, metadata={"help": "n: a word is predicted from the n - 1 previous words of the text"}
    )
    share_decoder_input_output_embed: bool = field(
        default=False, metadata={"help": "weight tying: input and output embeddings are one table"}
    )
    sharing_method: str = field(default="plain", metadata={"help": SHARING_METHOD_HELP})
    decoder_embed_dim: int = field(default=100, metadata={"help": "embedding dimension"})
    decoder_embed_path: Optional[str] = field(default=None, metadata={"help": "file of pretrained embeddings"})
    decoder_freeze_embed: bool = field(default=False, metadata={"help": "do not train input embeddings"})
    decoder_hidden_size: int = field(default=200, metadata={"help": "width of a hidden layer"})
    decoder_layers: int = field(default=1, metadata={"help": "number of hidden layers"})
    activation_fn: ChoiceEnum(list(ACTIVATIONS)) = field(  # type: ignore[valid-type]
        default="tanh", metadata={"help": "activation of the hidden layers"}
    )
    skip_connections: bool = field(
        default=False,
        metadata={"help": "the output layer also reads the context's embeddings, beside the last hidden layer"},
    )
    deep_output: ChoiceEnum(["none", LINEAR, *ACTIVATIONS]) = field(  # type: ignore[valid-type]
        default="none",
        metadata={
            "help": "activation of a further layer, as wide as the embeddings, before the output embedding; linear: "
            "the P of --projection-regularization"
        },
    )
    dropout: float = field(default=0.0, metadata={"help": "default of the other dropout probabilities"})
    decoder_dropout_in: Optional[float] = field(
        default=None, metadata={"help": DROPOUT_HELP.format("of the context's embeddings")}
    )
    decoder_dropout_out: Optional[float] = field(
        default=None, metadata={"help": DROPOUT_HELP.format("of the hidden layers' outputs")}
    )
    init_range: float = field(
        default=0.1, metadata={"help": "initial range: parameters start uniform in [-init-range, init-range]"}
    )


FeedForwardLMConfig = with_sizes(FeedForwardOptions, "feedforward_lm")


@register_model("feedforward_lm", dataclass=FeedForwardLMConfig)
class FeedForwardLM(StreamLM):
    """Feed-forward language model, untied, with a linear deep output.

    Parameters with n-grams of n tokens, embedding width m, and one hidden layer of width h: Vm + (n-1)mh + h, plus the
    output's V(h + 1) plain, V(h + (n-1)m + 1) with skip connections, hm + m + V(m + 1) with a deep output. A tied deep
    output has Vm fewer. Skip connections to a deep output add (n-1)m^2.

    Attributes:
        skips: whether the preset has skip connections, whatever the flags say.

    Source: Bengio et al. 2003, section 2; deep output: Pascanu et al. 2014, section 3.3; tied: Press & Wolf 2016.
    """

    recipe: ClassVar[dict[str, Any]] = training_options("feedforward_lm")
    skips: ClassVar[bool] = False
    meaning: ClassVar[tuple[Choice, ...]] = IN_FEEDFORWARD_LM

    @classmethod
    def build_model(cls, cfg: Any, task: Any) -> "FeedForwardLM":
        """Builds the model from its options.

        Raises:
            ValueError: for options out of range, and for widths or word vectors that do not fit.
        """
        check_ranges(cfg)
        check_output_layer(cfg)
        if cfg.ngram_order < 2:
            raise ValueError(f"--ngram-order: needs 2 or more; got {cfg.ngram_order}. Use 5, say.")
        if not 0 < cfg.init_range < float("inf"):
            raise ValueError(f"--init-range: needs a positive, finite number; got {cfg.init_range}. Use 0.1, say.")
        sharing_method(cfg.sharing_method, flag="--sharing-method")
        tied, deep = cfg.share_decoder_input_output_embed or cls.ties, str(cfg.deep_output)
        skip = cfg.skip_connections or cls.skips
        if tied and deep == "none":
            asked_by = f"--arch {cfg._name}" if cls.ties else "--share-decoder-input-output-embed"
            _check_tied_widths(cfg, asked_by, skip=skip)
        dictionary, width = task.target_dictionary, cfg.decoder_embed_dim
        stack = cls.build_stack(cfg, skip=skip)
        features_dim, projection, deep_output = stack.output_size, None, None
        if deep == LINEAR:
            projection = nn.Linear(features_dim, width)
        elif deep != "none":
            deep_output = nn.Sequential(nn.Linear(features_dim, width), ACTIVATIONS[deep]())
            features_dim = width
        table, output = build_tables(cfg, task, tied=tied, features_dim=features_dim, projection=projection)
        decoder = FeedForwardDecoder(dictionary, table, output, stack, order=cfg.ngram_order, deep_output=deep_output)
        model = cls(decoder)
        model.start(cfg, task)
        return model

    @classmethod
    def build_stack(cls, cfg: Any, *, skip: bool) -> FeedForwardStack:
        """Builds the hidden layers."""
        return FeedForwardStack(
            (cfg.ngram_order - 1) * cfg.decoder_embed_dim,
            cfg.decoder_hidden_size,
            cfg.decoder_layers,
            activation=str(cfg.activation_fn),
            skip=skip,
            dropout_in=FairseqDropout(first_given(cfg.decoder_dropout_in, cfg.dropout), cls.__name__),
            dropout_out=FairseqDropout(first_given(cfg.decoder_dropout_out, cfg.dropout), cls.__name__),
        )


def _check_tied_widths(cfg: Any, asked_by: str, *, skip: bool) -> None:
    """Checks that features without a deep output have the embeddings' width."""
    if skip:
        raise ValueError(
            f"{asked_by}: needs a deep output with --skip-connections, which makes features wider than the embeddings; "
            f"got --deep-output none. Use --deep-output {LINEAR}."
        )
    if cfg.decoder_embed_dim != cfg.decoder_hidden_size:
        raise ValueError(
            f"{asked_by}: needs --decoder-embed-dim equal to --decoder-hidden-size, or a deep output; got "
            f"{cfg.decoder_embed_dim} and {cfg.decoder_hidden_size}. Use --deep-output {LINEAR}."
        )


# Sizes and training, and their sources: config/NAME.yaml.
preset = partial(register_preset, FeedForwardLM, FeedForwardOptions)
preset("feedforward_lm_wt", "Feed-forward language model with weight tying and a linear deep output.", ties=True)
preset("bengio_lm", "Bengio et al. 2003: skip connections from the context's embeddings to the output.", skips=True)
