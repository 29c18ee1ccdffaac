"""The options that settle what a model's weights mean, and that a checkpoint's shapes and names do not tell apart.

Weights that were trained with one of these and read with another give wrong results without a word. So a training that
is resumed, and a command that overrides options, must have the same: ``compat/trained.py`` compares them.

``SHARING`` holds for every family; a family with more options of the kind names a longer table as ``meaning`` of its
class. A new option joins one of the two; tests/models/test_meaning.py knows which options are in none, and why.
"""

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Choice:
    """An option of a model that settles what its weights mean.

    Attributes:
        option: its name in the model's config (``sharing_method``).
        unset: what a config without it means; None where that is not known, and then it is not compared.
        presets: attributes of a model's class by which its presets choose it, whatever the flag says.
        implied_by: another choice that turns this one on.
    """

    option: str
    unset: bool | str | None = None
    presets: tuple[str, ...] = ()
    implied_by: "Choice | None" = None

    @property
    def flag(self) -> str:
        """The option as a flag."""
        return "--" + self.option.replace("_", "-")

    def value(self, model: type, cfg: Any) -> bool | str | None:
        """What was chosen.

        Args:
            model: the class of the preset.
            cfg: its options.
        """
        given = getattr(cfg, self.option, None)
        if given is None or given == "":
            given = self.unset
        if not isinstance(self.unset, bool):
            return None if given is None else str(given)
        by_preset = any(getattr(model, name, False) for name in self.presets)
        implied = self.implied_by is not None and bool(self.implied_by.value(model, cfg))
        return bool(given) or by_preset or implied


THREE_WAY = Choice("share_all_embeddings", False, presets=("shares_all",))
SHARING = (
    Choice("sharing_method", "plain"),
    THREE_WAY,
    Choice("share_decoder_input_output_embed", False, presets=("ties", "shares_decoder"), implied_by=THREE_WAY),
    Choice("projection", False, presets=("projects",)),
)
# Of language models whose output layer is chosen: a table that was trained as one layer's is no other's. Classes are
# read from the checkpoint whatever the number says, so that another number is a mistake.
SHARING_AND_OUTPUT_LAYER = (*SHARING, Choice("output_layer", "softmax"), Choice("classes"), Choice("tree", "huffman"))

# With options of fairseq's own models, for which fairseq checks nothing either: the number of heads changes no shape.
SHARING_IN_FAIRSEQS_MODELS = (
    *SHARING,
    Choice("tie_adaptive_weights", False),
    Choice("tie_adaptive_proj", False),
    Choice("merge_src_tgt_embed", False),
    Choice("no_scale_embedding", False),
    Choice("no_token_positional_embeddings", False),
    Choice("weight_softmax"),
    Choice("activation_fn"),
    Choice("encoder_attention_heads"),
    Choice("decoder_attention_heads"),
)
