"""The options that settle what a model's weights mean, and that a checkpoint's shapes and names do not tell apart.

Weights that were trained with one of these and read with another give wrong results without a word. So a training that
is resumed, and a command that overrides options, must have the same: ``compat/trained.py`` compares them.

There is one table a family, which its class names as ``meaning``. An option of a new kind joins the tables of the
families that have it; tests/models/test_meaning.py knows which options are in none, and why.
"""

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Choice:
    """An option of a model that settles what its weights mean.

    Attributes:
        option: its name in the model's config (``sharing_method``).
        unset: what a config without it means; None where that is not known, and then it is not compared.
        preset: attribute of a model's class by which its presets choose it, whatever the flag says.
        implied_by: another choice that turns this one on.
    """

    option: str
    unset: bool | str | None = None
    preset: str = ""
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
        implied = self.implied_by is not None and bool(self.implied_by.value(model, cfg))
        return bool(given) or bool(getattr(model, self.preset, False)) or implied


METHOD = Choice("sharing_method", "plain")

RECURRENT_LM = (
    METHOD,
    Choice("share_decoder_input_output_embed", False, preset="ties"),
    Choice("projection", False, preset="projects"),
)

THREE_WAY = Choice("share_all_embeddings", False, preset="shares_all")
ATTENTION_NMT = (
    METHOD,
    THREE_WAY,
    Choice("share_decoder_input_output_embed", False, preset="shares_decoder", implied_by=THREE_WAY),
)

# fairseq's models with our tables. With its own options too: the number of heads, say, changes no shape.
TRANSPLANTED = (
    *ATTENTION_NMT,
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
