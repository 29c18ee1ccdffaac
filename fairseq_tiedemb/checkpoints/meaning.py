"""Options that change what a model's weights mean but neither their shapes nor their names.

Weights trained with one value and loaded with another silently give wrong results. These options are therefore
compared when training resumes, when a command overrides options, and when checkpoints are averaged.

``SHARING_AND_OUTPUT_LAYER`` applies to every family; one with more such options has a list as ``meaning`` of its class.
A new option joins a list here, or the exceptions in tests/models/test_meaning.py with a reason.
"""

from argparse import Namespace
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from ..option_checks import flag_of

# Options that share tables.
TYING, THREE_WAY, MERGED = "share_decoder_input_output_embed", "share_all_embeddings", "merge_src_tgt_embed"


@dataclass(frozen=True)
class Choice:
    """A model option that changes what the weights mean."""

    option: str  # name of the option in the model's config (``sharing_method``)
    # Value that a config without the option stands for; None if unknown, and then it is not compared.
    unset: bool | str | None = None
    implied_by: "Choice | None" = None  # another choice that turns this one on
    also: str | None = None  # another name of the value ``unset``
    former: str | None = None  # a former option, whose values ``FORMER_OUTPUTS`` translates

    @property
    def flag(self) -> str:
        """The option as a flag."""
        return flag_of(self.option)

    def value(self, model: type, cfg: Any) -> bool | str | None:
        """The value that the class of the preset, ``model``, and its options ``cfg`` choose."""
        given = getattr(cfg, self.option, None)
        if self.former is not None:
            given = FORMER_OUTPUTS.get(str(getattr(cfg, self.former, None)), given)
        if given is None or given in ("", self.also):
            given = self.unset
        if not isinstance(self.unset, bool):
            given = f"{given:.15g}" if isinstance(given, float) else given  # 2.0 is 2
            return None if given is None else str(given)
        by_preset = self.option in getattr(model, "turned_on", ())
        implied = self.implied_by is not None and bool(self.implied_by.value(model, cfg))
        return bool(given) or by_preset or implied


SHARES_ALL = Choice(THREE_WAY, False)
SHARING = (
    Choice("sharing_method", "plain"),
    # Bands have other shapes than one table, and --adaptive-softmax-cutoff implies them.
    Choice("output_layer", "softmax", also="adaptive", former="word2vec_output"),
    SHARES_ALL,
    Choice(TYING, False, implied_by=SHARES_ALL),
    Choice("projection", False),
    Choice("embedding_scale", "1"),
    Choice("logit_scale", "1"),
    Choice("logit_soft_cap", "none"),
    # These change shapes, too, of which fairseq does not say the cause.
    Choice("projection_bias", False),
    Choice("no_projection_bias", False),
    Choice("embedding_rank", "none"),
)
# A preset may turn these on by its name alone.
SET_BY_PRESETS = tuple(choice for choice in SHARING if isinstance(choice.unset, bool))
# For language models: a table trained under one output layer does not fit another. The checkpoint's classes replace
# --classes, so another number there is a mistake.
OUTPUT_LAYER = (
    Choice("output_layer_options", "none"),
    Choice("classes"),
    Choice("tree", "huffman"),
    Choice("short_list_shares", "counts"),
)
# Values of word2vec's flag before --output-layer, --word2vec-output.
FORMER_OUTPUTS = {"negative": "negative-sampling", "full": "softmax", "tree": "tree"}
SHARING_AND_OUTPUT_LAYER = (*SHARING, *OUTPUT_LAYER)
IN_FEEDFORWARD_LM = (*SHARING_AND_OUTPUT_LAYER, Choice("activation_fn", "tanh"), Choice("deep_output", "none"))

# With options of fairseq's own models that fairseq does not check: the number of heads, for one, changes no shape.
SHARING_IN_FAIRSEQS_MODELS = (
    *SHARING_AND_OUTPUT_LAYER,
    *(Choice(option, False) for option in ("tie_adaptive_weights", "tie_adaptive_proj", MERGED)),
    *(Choice(option, False) for option in ("no_scale_embedding", "no_token_positional_embeddings")),
    *map(Choice, ("weight_softmax", "activation_fn", "encoder_attention_heads", "decoder_attention_heads")),
)

# Of all families. An option that has another default in two of them has none here.
ALL = {choice.option: choice for choice in (*IN_FEEDFORWARD_LM, *SHARING_IN_FAIRSEQS_MODELS)}.values()


def differences(
    first: tuple[type, Any], other: tuple[type, Any], choices: Iterable[Choice]
) -> Iterator[tuple[str, Any, Any]]:
    """Yields the choices in which two models differ, as (flag, first value, other value); unknown values are equal.

    A model is given by its class and its options.
    """
    for choice in dict.fromkeys(choices):
        old, new = (choice.value(*model) for model in (first, other))
        if old is not None and new is not None and old != new:
            yield choice.flag, old, new


def differences_of_settings(first: dict[str, Any], other: dict[str, Any]) -> Iterator[tuple[str, Any, Any]]:
    """``differences`` of two models whose classes are not known, by the settings in their checkpoints.

    Options that a preset may set by its name are compared between models of one preset alone.
    """
    choices = [choice for choice in ALL if preset_of(first) == preset_of(other) or choice not in SET_BY_PRESETS]
    return differences((object, Namespace(**first)), (object, Namespace(**other)), choices)


def preset_of(options: Mapping[str, Any]) -> str:
    """Returns the name of the preset that a model's settings choose."""
    return str(options.get("_name") or options.get("arch"))
