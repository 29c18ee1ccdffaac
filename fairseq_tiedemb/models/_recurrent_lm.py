"""Base class of the recurrent language models: options, tables, adaptive softmax, projection."""

# ruff: noqa: UP045 (fairseq's parser understands Optional[X], not X | None)

from dataclasses import dataclass, field
from typing import Any, ClassVar, Optional

from fairseq.modules import AdaptiveInput, AdaptiveSoftmax
from torch import nn

from ..embedding import SharedEmbedding
from ..modules.dropout import VariationalDropout
from ..outputs import Bands, OutputLayer, embed_bands, tie_bands
from ..sharing import sharing_method
from ._options import (
    PROJECTION_BIAS_HELP,
    PROJECTION_HELP,
    SHARING_METHOD_HELP,
    check_projection,
    check_ranges,
)
from ._output_layer import SOFTMAX, OutputLayerConfig, build_tables, check_output_layer
from ._recurrent_decoder import RecurrentDecoder, RecurrentStack
from ._stream_lm import StreamLM

# Default ratio of the widths of consecutive bands.
FACTOR = 4.0


@dataclass
class RecurrentLMConfig(OutputLayerConfig):
    """Options of recurrent language models, named as in fairseq's ``lstm_lm`` where it has them."""

    share_decoder_input_output_embed: bool = field(
        default=False, metadata={"help": "weight tying: input and output embeddings are one table"}
    )
    sharing_method: str = field(default="plain", metadata={"help": SHARING_METHOD_HELP})
    decoder_embed_dim: int = field(
        default=200,
        metadata={"help": "embedding dimension; with weight tying the hidden size, unless --projection is given"},
    )
    decoder_embed_path: Optional[str] = field(default=None, metadata={"help": "file of pretrained embeddings"})
    decoder_freeze_embed: bool = field(default=False, metadata={"help": "do not train input embeddings"})
    decoder_hidden_size: int = field(default=200, metadata={"help": "hidden size"})
    projection: bool = field(default=False, metadata={"help": PROJECTION_HELP})
    projection_bias: bool = field(default=False, metadata={"help": PROJECTION_BIAS_HELP})
    no_projection_bias: bool = field(default=False, metadata={"help": "give P no bias, even in presets with one"})
    adaptive_softmax_cutoff: Optional[str] = field(
        default=None,
        metadata={
            "help": "adaptive softmax: frequency ranks at which bands end, such as 2000,6000; tied input embeddings "
            "get the same bands; several processes need --ddp-backend legacy_ddp"
        },
    )
    adaptive_softmax_factor: float = field(
        default=FACTOR, metadata={"help": "adaptive softmax: ratio of the widths of consecutive bands"}
    )
    dropout_words: float = field(
        default=0.0, metadata={"help": "variational dropout: probability of dropping a word type from a row"}
    )
    dropout_inputs: float = field(
        default=0.0, metadata={"help": "variational dropout: probability for the inputs of each layer"}
    )
    dropout_states: float = field(
        default=0.0, metadata={"help": "variational dropout: probability for the recurrent states"}
    )
    dropout_outputs: float = field(
        default=0.0, metadata={"help": "variational dropout: probability for the last layer's outputs"}
    )
    init_range: float = field(
        default=0.1, metadata={"help": "initial range: parameters start uniform in [-init-range, init-range]"}
    )


class RecurrentLM(StreamLM):
    """Recurrent language model, optionally with weight tying and a projection.

    Attributes:
        projects: whether the preset has a projection with a bias.
    """

    projects: ClassVar[bool] = False

    @classmethod
    def build_stack(cls, cfg: Any) -> RecurrentStack:
        """Builds the recurrent layers."""
        raise NotImplementedError

    @classmethod
    def build_dropout(cls, cfg: Any) -> tuple[nn.Module, nn.Module]:
        """Dropout of input vectors and of the last layer's outputs: variational by default."""
        return nn.Identity(), VariationalDropout(cfg.dropout_outputs)

    def check_training(self, criterion: Any, cfg: Any) -> None:
        """Extends ``StreamLM.check_training``: ``--adaptive-softmax-factor`` without bands raises ValueError."""
        super().check_training(criterion, cfg)
        if cfg.adaptive_softmax_cutoff is None and cfg.adaptive_softmax_factor != FACTOR:
            raise ValueError(
                f"--adaptive-softmax-factor: needs --adaptive-softmax-cutoff; got {cfg.adaptive_softmax_factor} "
                "without it. Use --adaptive-softmax-cutoff 2000,6000, say, or leave it out."
            )

    @classmethod
    def build_model(cls, cfg: Any, task: Any) -> "RecurrentLM":
        """Builds the model from its options.

        Raises:
            ValueError: for options out of range, and for widths or word vectors that do not fit.
        """
        check_ranges(cfg)
        check_output_layer(cfg)
        if not 0 < cfg.init_range < float("inf"):
            raise ValueError(f"--init-range: needs a positive, finite number; got {cfg.init_range}. Use 0.1, say.")
        dictionary = task.target_dictionary
        tied = cfg.share_decoder_input_output_embed or cls.ties
        projects = cfg.projection or cls.projects
        bias = (cfg.projection_bias or cls.projects) and not cfg.no_projection_bias
        check_projection(projects=projects, bias=cfg.projection_bias, no_bias=cfg.no_projection_bias)
        width = cfg.decoder_embed_dim if projects else cfg.decoder_hidden_size
        if tied and width != cfg.decoder_embed_dim:
            asked_by = f"--arch {cfg._name}" if cls.ties else "--share-decoder-input-output-embed"
            raise ValueError(
                f"{asked_by}: needs --decoder-embed-dim equal to --decoder-hidden-size, or "
                f"--projection; got {cfg.decoder_embed_dim} and {cfg.decoder_hidden_size}. Use --projection."
            )
        sharing_method(cfg.sharing_method, flag="--sharing-method")
        projection = nn.Linear(cfg.decoder_hidden_size, width, bias=bias) if projects else None
        embed_tokens, output = cls._build_tables(cfg, task, projection, tied)
        dropout_in, dropout_out = cls.build_dropout(cfg)
        decoder = RecurrentDecoder(
            dictionary,
            embed_tokens,
            output,
            cls.build_stack(cfg),
            word_dropout=cfg.dropout_words,
            dropout_in=dropout_in,
            dropout_out=dropout_out,
        )
        model = cls(decoder)
        model.start(cfg, task)
        return model

    @classmethod
    def _build_tables(
        cls, cfg: Any, task: Any, projection: nn.Linear | None, tied: bool
    ) -> tuple[nn.Module, OutputLayer]:
        """Input table or adaptive input, and the output layer."""
        features_dim = cfg.decoder_hidden_size
        if cfg.adaptive_softmax_cutoff is None:
            return build_tables(cfg, task, tied=tied, features_dim=features_dim, projection=projection)
        size, pad = len(task.target_dictionary), task.target_dictionary.pad()
        embed_dim, method = cfg.decoder_embed_dim, cfg.sharing_method
        width = features_dim if projection is None else projection.out_features
        if cfg.output_layer != SOFTMAX:
            raise ValueError(
                f"--output-layer {cfg.output_layer}: needs one table for all words; got --adaptive-softmax-cutoff "
                f"{cfg.adaptive_softmax_cutoff}. Use one or the other."
            )
        if cfg.output_bias_init is not None:
            raise ValueError(
                f"--output-bias-init: needs an output layer with biases; got {cfg.output_bias_init} with "
                f"--adaptive-softmax-cutoff {cfg.adaptive_softmax_cutoff}. Leave it out."
            )
        factor = cfg.adaptive_softmax_factor
        cutoff = _cutoff(cfg.adaptive_softmax_cutoff, factor, size=size, width=min(embed_dim, width))
        if not tied:
            if not sharing_method(method).is_plain:
                raise ValueError(
                    f"--sharing-method {method}: needs bands that input and output share; got "
                    f"--adaptive-softmax-cutoff {cfg.adaptive_softmax_cutoff} without "
                    "--share-decoder-input-output-embed. Use that flag too, or --sharing-method plain."
                )
            table = SharedEmbedding(size, embed_dim, pad, method=method)
            bands = Bands(AdaptiveSoftmax(size, width, cutoff, 0.0, factor=factor))
            return table, OutputLayer(bands, borrowed=True, projection=projection)
        if cfg.decoder_embed_path or cfg.decoder_freeze_embed:
            raise ValueError(
                "--decoder-embed-path, --decoder-freeze-embed: need one input table for all words; got tied bands, by "
                f"--adaptive-softmax-cutoff {cfg.adaptive_softmax_cutoff}. Use one or the other."
            )
        tables = AdaptiveInput(size, pad, embed_dim, factor, embed_dim, cutoff)
        adaptive_softmax = AdaptiveSoftmax(size, width, cutoff, 0.0, factor=factor, adaptive_inputs=tables)
        embed_bands(tables, method)
        tie_bands(adaptive_softmax, tables)
        return tables, OutputLayer(Bands(adaptive_softmax), borrowed=True, projection=projection)


def _cutoff(text: str, factor: float, *, size: int, width: int) -> list[int]:
    """Parses ``--adaptive-softmax-cutoff``; raises ValueError if it does not fit ``size`` tokens or ``width``."""
    try:
        cutoff = [int(number) for number in str(text).strip("[]()").split(",")]
    except ValueError:
        cutoff = []
    rising = all(low < high for low, high in zip([0, *cutoff], [*cutoff, size], strict=True))
    if not cutoff or not rising:
        raise ValueError(
            f"--adaptive-softmax-cutoff: needs rising numbers between 0 and {size}, the size of the dictionary; got "
            f"{text}. Use 2000,6000, say."
        )
    if not factor >= 1 or int(width // factor ** len(cutoff)) < 1:
        raise ValueError(
            f"--adaptive-softmax-factor: needs 1 or more, and a last band, of {width} / factor^{len(cutoff)}, at least "
            f"1 wide; got {factor}. Use 4, or fewer bands."
        )
    return cutoff
