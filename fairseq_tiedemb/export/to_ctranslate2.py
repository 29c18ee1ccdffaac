"""Converts a Transformer, ours or fairseq's, for translation or language modelling, to CTranslate2's format.

CTranslate2 is a fast inference engine. Its format has an output bias, so that every sharing method with affine logits
can be exported. Its own converter for fairseq reads the layers; tables are folded (``folding``).
"""

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fairseq_tiedemb.export.folding import fold_tables
from fairseq_tiedemb.export.targets import ACTIVATIONS, COMMANDS, require, require_distinct
from fairseq_tiedemb.loading import checked_settings, load_model

try:
    from ctranslate2.converters.fairseq import set_transformer_decoder, set_transformer_encoder
    from ctranslate2.specs import transformer_spec
    from ctranslate2.specs.common_spec import Activation
except ModuleNotFoundError as error:
    needs, got = "the package ctranslate2", f"a Python without it, {sys.executable}"
    raise ValueError(f"--to ctranslate2: needs {needs}; got {got}. Use pip install ctranslate2.") from error

MEAN = 0  # of all attention heads, as the alignment, as in fairseq


def convert(checkpoint: Path, state: Mapping[str, Any], data: Path | None) -> Any:
    """Returns the engine's specification of a Transformer, whose file holds `state` as torch saved it, for ``save``.

    `data` is the folder with the dictionaries; None for that of the training. ValueError if the engine does not support
    the model, a dictionary or a part of the checkpoint is missing, or a dictionary repeats a word.
    """
    settings = checked_settings(state, str(checkpoint))
    require("ctranslate2", settings)
    model, task, config = load_model(checkpoint, settings, data)
    fold_tables(model.eval().requires_grad_(False))
    return (_translation if hasattr(model, "encoder") else _language_model)(model, task, config.model)


def save(spec: Any, folder: Path, *, quantization: str) -> None:
    """Writes a specification into an empty folder: weights, settings and vocabularies.

    `quantization` of the matrices is float32, or int8 with a scale per row.
    """
    spec.validate()
    spec.optimize(quantization=quantization)
    spec.save(str(folder))


def _translation(model: Any, task: Any, options: Any) -> Any:
    encoder, decoder = model.encoder, model.decoder
    of_encoder = transformer_spec.TransformerEncoderSpec(**_layers(encoder, "encoder", options))
    of_decoder = transformer_spec.TransformerDecoderSpec(**_layers(decoder, "decoder", options), alignment_heads=MEAN)
    spec = transformer_spec.TransformerSpec(of_encoder, of_decoder)
    set_transformer_encoder(spec.encoder, encoder)
    set_transformer_decoder(spec.decoder, decoder)
    spec.register_source_vocabulary(_vocabulary(task.source_dictionary))
    spec.register_target_vocabulary(_vocabulary(task.target_dictionary))
    spec.config.decoder_start_token = spec.config.eos_token
    spec.config.add_source_eos = True
    # The engine's format does not record its maximum lengths, which include the end of the sentence.
    spec.config.add_attribute("max_source_positions", len(spec.encoder.position_encodings.encodings))
    spec.config.add_attribute("max_target_positions", len(spec.decoder.position_encodings.encodings))
    return spec


def _language_model(model: Any, task: Any, options: Any) -> Any:
    if len(task.output_dictionary) != len(task.dictionary):
        got = f"--output-dictionary-size {len(task.output_dictionary)} of {len(task.dictionary)} words"
        raise ValueError(f"CHECKPOINT: needs one dictionary for input and output; got {got}. Use {COMMANDS}.")
    layers = _layers(model.decoder, "decoder", options)
    decoder = transformer_spec.TransformerDecoderSpec(**layers, alignment_heads=MEAN, with_encoder_attention=False)
    spec = transformer_spec.TransformerDecoderModelSpec(decoder)
    set_transformer_decoder(spec.decoder, model.decoder, with_encoder_attention=False)
    spec.register_vocabulary(_vocabulary(task.dictionary))
    if not options.add_bos_token:
        spec.config.bos_token = spec.config.eos_token
    return spec


def _layers(part: Any, side: str, options: Any) -> dict[str, Any]:
    """Returns what the specification of an encoder or a decoder says of its layers."""
    return {
        "num_layers": len(part.layers),
        "num_heads": getattr(options, f"{side}_attention_heads"),
        "pre_norm": getattr(options, f"{side}_normalize_before"),
        "no_final_norm": part.layer_norm is None,
        "activation": getattr(Activation, ACTIVATIONS[getattr(options, "activation_fn", None) or "relu"]),
        "layernorm_embedding": part.layernorm_embedding is not None,
    }


def _vocabulary(dictionary: Any) -> list[str]:
    """Returns the words in the order of their rows, of which the engine would confuse two with the same word."""
    words = ["<blank>" if word == dictionary.pad_word else word for word in dictionary.symbols]
    require_distinct(words)
    return words
