"""Options that several families have, each declared once."""

from dataclasses import dataclass
from typing import Any, Optional

from fairseq.dataclass import FairseqDataclass

from ..constants import Constants
from ..option_checks import POSITIVE, PROBABILITY, OneOf, Range, option
from ..outputs import OUTPUT_HEADS, SOFTMAX
from ..outputs.ours import OURS, AdaptiveConfig
from ..sharing import SHARING_METHODS

SHARING_METHODS.load()
SHARING_METHOD_HELP = "how one table gives input vectors and logits: " + "; ".join(
    # argparse formats help with %
    f"{method.name} ({method.summary})".replace("%", "%%")
    for method in SHARING_METHODS.values()
)
# Output layers that need neither the counts of a text nor bands.
TRANSLATION_HEADS = (SOFTMAX, "mixture", "joint")


def size(default: int, about: str) -> Any:
    """A field for a size, which must be positive; ``about`` is its help."""
    return option(default, about, needs=POSITIVE)


def probability(default: float, about: str) -> Any:
    """A field for a dropout probability; ``about`` is its help."""
    return option(default, about, needs=PROBABILITY)


def own_dropout(of: str) -> Any:
    """A field for the dropout probability of a part, with ``--dropout`` as default."""
    return option(None, f"dropout probability {of}; default: --dropout", needs=PROBABILITY)


@dataclass
class MethodConfig(Constants, FairseqDataclass):
    """The sharing method and its constants, which every family has."""

    sharing_method: str = option("plain", SHARING_METHOD_HELP)
    unit_rows: bool = option(False, "trained rows start with norm 1 and are divided by their norms after each update")


@dataclass
class TyingConfig(MethodConfig):
    """Weight tying, under fairseq's name."""

    share_decoder_input_output_embed: bool = option(
        False, "weight tying: (decoder) input and output embeddings are one table"
    )


@dataclass
class ProjectionConfig(FairseqDataclass):
    """The projection P."""

    projection: bool = option(False, "a learned matrix P between features and output embedding (Press & Wolf 2016)")
    projection_bias: bool = option(False, "with --projection, give P a bias, as Press & Wolf and presets with P do")


@dataclass
class FairseqsFamilyConfig(ProjectionConfig, MethodConfig):
    """What our forms of fairseq's families have beside fairseq's own options."""

    embedding_rank: Optional[int] = option(
        None,
        "factorise all embeddings (Lan et al. 2020): tables of this width, and projections between this "
        "width and the model's",
    )


# Options of this package's heads, each once. Bands have families of their own.
_HEADS = [head for head in OURS if head.has_probabilities and head.options is not AdaptiveConfig]
_OF_TRANSLATION = dict.fromkeys(OUTPUT_HEADS[name].options for name in TRANSLATION_HEADS)


@dataclass
class OutputLayerConfig(*dict.fromkeys(head.options for head in _HEADS), FairseqDataclass):  # type: ignore[misc]
    """The output layer of a language model."""

    output_layer: str = option(
        SOFTMAX,
        "; ".join(f"{head.name}: {head.summary}" for head in OUTPUT_HEADS.values() if head.has_probabilities)
        + "; or your own",
    )
    output_layer_options: Optional[str] = option(None, "options of an output layer of your own: NAME=VALUE,...")
    output_bias_init: Optional[str] = option(
        None,
        "initial output biases: zero, uniform (log 1/V) or unigram (log frequencies in the training text); "
        "default: for softmax random like all parameters, else unigram; refused for adaptive, without biases",
        needs=OneOf(("zero", "uniform", "unigram"), "unigram"),
    )


@dataclass
class TranslationOutputConfig(*_OF_TRANSLATION, FairseqDataclass):  # type: ignore[misc]
    """The output layer of a translation model."""

    output_layer: str = option(SOFTMAX, "; ".join(f"{key}: {OUTPUT_HEADS[key].summary}" for key in TRANSLATION_HEADS))


@dataclass
class StreamLMConfig(TyingConfig, OutputLayerConfig):
    """Options of language models that read a stream of text, named as in fairseq's ``lstm_lm`` where it has them."""

    decoder_embed_path: Optional[str] = option(None, "file of pretrained embeddings, in word2vec's text format")
    decoder_freeze_embed: bool = option(False, "do not train input embeddings")
    init_range: float = option(
        0.1,
        "initial range: parameters start uniform in [-init-range, init-range]",
        needs=Range("a positive, finite number", "0.1, say", above=0),
    )


@dataclass
class RecurrentLMConfig(AdaptiveConfig, ProjectionConfig, StreamLMConfig):
    """Options of recurrent language models, named as in fairseq's ``lstm_lm`` where it has them."""

    decoder_embed_dim: int = size(
        200, "embedding dimension; with weight tying the hidden size, unless --projection is given"
    )
    decoder_hidden_size: int = size(200, "hidden size")
    no_projection_bias: bool = option(False, "give P no bias, even in presets with one")
    dropout_words: float = probability(0.0, "variational dropout: probability of dropping a word type from a row")
    dropout_inputs: float = probability(0.0, "variational dropout: probability for the inputs of each layer")
    dropout_states: float = probability(0.0, "variational dropout: probability for the recurrent states")
    dropout_outputs: float = probability(0.0, "variational dropout: probability for the last layer's outputs")
