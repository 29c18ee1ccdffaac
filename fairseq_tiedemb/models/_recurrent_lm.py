"""What the recurrent language models share: their options and family."""

from dataclasses import dataclass

from ..option_checks import option
from ..outputs.ours import AdaptiveConfig
from ..plan import Family, Settings, Widths
from ._options import ProjectionConfig, StreamLMConfig, probability, size


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


def _widths(settings: Settings) -> Widths:
    width = settings("decoder_embed_dim")
    return Widths(width, settings("decoder_hidden_size"), projected=width)


def _unequal(settings: Settings, widths: Widths) -> tuple[str, str, str]:
    needs = "--decoder-embed-dim equal to --decoder-hidden-size, or --projection"
    return needs, f"{widths.input} and {widths.features}", "--projection"


RECURRENT = Family(_widths, _unequal, equal_widths=("decoder_embed_dim", "decoder_hidden_size"))
