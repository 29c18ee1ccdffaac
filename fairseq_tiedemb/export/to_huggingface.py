"""Converts a Transformer, ours or fairseq's, to a folder that Hugging Face's transformers loads.

A translation model becomes FSMT, fairseq's own Transformer there, and a pre-norm language model XGLM. Tables are folded
(``folding``). Neither transformers nor safetensors is needed to write the folder.
"""

import json
import re
import struct
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from fairseq_tiedemb.checkpoints.reading import as_dict, require_weights
from fairseq_tiedemb.checkpoints.text import read_lines
from fairseq_tiedemb.export.folding import fold_tables
from fairseq_tiedemb.export.loading import load_model
from fairseq_tiedemb.export.settings import settings_of
from fairseq_tiedemb.export.targets import COMMANDS, require

ACTIVATIONS = {"gelu_accurate": "gelu_new", "gelu_fast": "gelu_new"}  # fairseq's names of the tanh approximation
# Entries of layers, which have the same names there.
LAYER = re.compile(
    r"(?:encoder|decoder)\.(?:layer_norm|layers\.\d+\."
    r"(?:(?:self|encoder)_attn\.(?:k|v|q|out)_proj|(?:self_attn_|encoder_attn_|final_)layer_norm|fc1|fc2))\.(?:weight|bias)"
)
TABLES = ("encoder.embed_tokens.weight", "decoder.embed_tokens.weight", "decoder.output_projection.weight")
# What has been folded, or is computed there.
LEFT_OUT = re.compile(r"(?:encoder|decoder)\.(?:version|projection\..*|embed_positions\._float_tensor)")
SPECIAL = {"bos_token": "<s>", "pad_token": "<pad>", "eos_token": "</s>", "unk_token": "<unk>"}
BOS, PAD, EOS, UNK = range(4)
GENERATION = {"pad_token_id": PAD, "eos_token_id": EOS, "early_stopping": True, "suppress_tokens": [PAD]}


class Exported(NamedTuple):
    """What the folder has.

    Attributes:
        weights: by name; tied tables once.
        files: JSON of other files, by name.
        merges: BPE codes of FSMT's tokenizer; None without.
        about: the class, and what is missing.
    """

    weights: Mapping[str, Tensor]
    files: Mapping[str, Any]
    merges: Sequence[str] | None
    about: str


def convert(checkpoint: Path, state: Mapping[str, Any], data: Path | None, codes: Path | None) -> Exported:
    """Returns the content of the folder, for ``save``.

    Args:
        checkpoint: the file of a Transformer, ours or fairseq's.
        state: its content, as torch saved it.
        data: folder with the dictionaries; None for the data folder of the training.
        codes: BPE codes of subword-nmt or fastBPE, for the tokenizer of a translation model; or None.

    Raises:
        ValueError: if no class fits the model, or a dictionary or a part of the checkpoint is missing.
    """
    settings = settings_of(state, str(checkpoint))
    require("huggingface", settings)
    require_weights(state["model"], str(checkpoint))
    model, task, config = load_model(checkpoint, settings, data)
    fold_tables(model.eval().requires_grad_(False))
    weights = {key: entry for key, entry in model.state_dict().items() if not LEFT_OUT.fullmatch(key)}
    _check(weights, task)
    make = _fsmt if hasattr(model, "encoder") else _xglm
    if codes is not None and make is _xglm:
        raise ValueError(f"--bpe-codes: needs a translation model, FSMT there; got {codes} for XGLM. Leave it out.")
    return make(weights, model, task, as_dict(config.model), codes)


def save(exported: Exported, folder: Path) -> None:
    """Writes all into an empty folder."""
    _write_tensors(exported.weights, folder / "model.safetensors")
    for name, content in exported.files.items():
        (folder / name).write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    if exported.merges is not None:
        (folder / "merges.txt").write_text("".join(f"{merge}\n" for merge in exported.merges), encoding="utf-8")


def _check(weights: Mapping[str, Tensor], task: Any) -> None:
    """Raises ValueError for parts that the classes lack, and tables with other rows than the dictionaries' words."""
    lacking = [key for key in weights if key not in TABLES and not LAYER.fullmatch(key)]
    if lacking:
        raise ValueError(f"CHECKPOINT: needs parts that FSMT or XGLM has; got {lacking[0]}. Use {COMMANDS}.")
    for key, words in zip(TABLES, (task.source_dictionary, *[task.target_dictionary] * 2), strict=True):
        if key in weights and len(weights[key]) != len(words):
            raise ValueError(
                f"CHECKPOINT: needs a row for each of {len(words):,} words; got {len(weights[key]):,} in {key}. Use "
                f"one dictionary, or {COMMANDS}."
            )


def _common(options: Mapping[str, Any], words: Any, tied: bool) -> dict[str, Any]:
    """The part of config.json that both classes have."""
    activation = str(options.get("activation_fn") or "relu")
    return {
        "activation_function": ACTIVATIONS.get(activation, activation),
        "d_model": int(options["decoder_embed_dim"]),
        "dropout": float(options.get("dropout") or 0),
        "attention_dropout": float(options.get("attention_dropout") or 0),
        "activation_dropout": float(options.get("activation_dropout") or 0),
        "scale_embedding": not options.get("no_scale_embedding"),
        "tie_word_embeddings": tied,
        "max_position_embeddings": int(options.get("max_target_positions") or options.get("tokens_per_sample") or 1024),
        "pad_token_id": words.pad(),
        "eos_token_id": words.eos(),
        "dtype": "float32",
    }


def _fsmt(
    weights: dict[str, Tensor], model: Any, task: Any, options: Mapping[str, Any], codes: Path | None
) -> Exported:
    source, target = task.source_dictionary, task.target_dictionary
    tables = [weights[key] for key in TABLES]
    tied = all(torch.equal(table, tables[0]) if table.shape == tables[0].shape else False for table in tables)
    languages = [as_dict(task.cfg).get(f"{side}_lang") for side in ("source", "target")]
    config = {
        "architectures": ["FSMTForConditionalGeneration"],
        "model_type": "fsmt",
        "langs": languages,
        "src_vocab_size": len(source),
        "tgt_vocab_size": len(target),
        "bos_token_id": BOS,
        "decoder_start_token_id": EOS,
        **_common(options, target, tied),
    }
    for side in ("encoder", "decoder"):
        config |= {f"{side}_layers": len(getattr(model, side).layers)}
        config |= {f"{side}_attention_heads": options[f"{side}_attention_heads"]}
        config |= {f"{side}_ffn_dim": options[f"{side}_ffn_embed_dim"]}
    generation = {
        **GENERATION,
        "num_beams": 5,
        "max_length": 200,
        "decoder_start_token_id": EOS,
        "forced_eos_token_id": EOS,
    }
    files = {"config.json": config, "generation_config.json": generation}
    merges, lacks = None, ""
    if codes is not None:
        merges = _merges(codes)
        of_tokenizer = {"tokenizer_class": "FSMTTokenizer", "langs": languages, **SPECIAL}
        vocabularies = {"src": source, "tgt": target}
        files |= {f"vocab-{name}.json": _pieces(words) for name, words in vocabularies.items()}
        files |= {"tokenizer_config.json": of_tokenizer}
    elif source.symbols == target.symbols:
        files |= _word_level(source, ["$A", "</s>"])
        lacks = ", with a tokenizer of segmented text: --bpe-codes FILE would make one of raw text"
    else:
        files |= {f"vocab-{name}.json": dict(words.indices) for name, words in (("src", source), ("tgt", target))}
        lacks = ", without a tokenizer: --bpe-codes FILE would make one"
    left_out = TABLES[:1] + TABLES[2:] if tied else ()
    named = {f"model.{key}": entry for key, entry in weights.items() if key not in left_out}
    return Exported(named, files, merges, f"FSMT of transformers{_tables(tied, tables[1:])}{lacks}")


def _xglm(
    weights: dict[str, Tensor], model: Any, task: Any, options: Mapping[str, Any], codes: Path | None
) -> Exported:
    words, tables = task.dictionary, [weights[key] for key in TABLES[1:]]
    tied = torch.equal(*tables)
    bos = BOS if options.get("add_bos_token") else EOS
    config = {
        "architectures": ["XGLMForCausalLM"],
        "model_type": "xglm",
        "vocab_size": len(words),
        "ffn_dim": options["decoder_ffn_embed_dim"],
        "num_layers": len(model.decoder.layers),
        "attention_heads": options["decoder_attention_heads"],
        "bos_token_id": bos,
        "decoder_start_token_id": bos,
        **_common(options, words, tied),
    }
    generation = {**GENERATION, "bos_token_id": bos}
    # As fairseq's sentences begin.
    start = [*(["<s>"] if bos == BOS else []), "</s>", "$A"]
    files = {"config.json": config, "generation_config.json": generation, **_word_level(words, start)}
    names = {TABLES[2]: "lm_head.weight"}
    named = {names.get(key, key.replace("decoder.", "model.", 1)): entry for key, entry in weights.items()}
    if tied:
        del named["lm_head.weight"]
    lacks = ", with a tokenizer of segmented text"
    return Exported(named, files, None, f"XGLM of transformers{_tables(tied, tables)}{lacks}")


def _tables(tied: bool, decoders: Sequence[Tensor]) -> str:
    """What is said of the tables."""
    if tied:
        return ", its tables one"
    return ", whose decoder's tables are equal but written twice" if torch.equal(*decoders) else ", untied"


def _pieces(words: Any) -> dict[str, int]:
    """Rows by piece as FSMT spells them: the end of a word is marked, not its continuation (``@@``)."""
    pieces = {}
    for row, word in enumerate(words.symbols):
        is_special = row < len(SPECIAL)
        pieces[word if is_special else word.removesuffix("@@") if word.endswith("@@") else f"{word}</w>"] = row
    return pieces


def _merges(path: Path) -> list[str]:
    """The pairs of BPE codes, without the header of subword-nmt and the counts of fastBPE.

    Raises:
        ValueError: naming the first line that is no pair.
    """
    pairs = []
    for number, line in read_lines(path, flag="--bpe-codes"):
        fields = line.split()
        if line.startswith("#version") or not fields:
            continue
        if len(fields) not in (2, 3):
            raise ValueError(
                f"--bpe-codes: needs lines of two pieces; got {line.strip()[:60]!r} in line {number} of {path}. Use "
                "the codes of subword-nmt or fastBPE."
            )
        pairs.append(" ".join(fields[:2]))
    return pairs


def _word_level(words: Any, template: Sequence[str]) -> dict[str, Any]:
    """Files of a tokenizer for text whose subwords are separated by spaces, as in the training."""

    def special(word: str) -> dict[str, Any]:
        return {"SpecialToken": {"id": word, "type_id": 0}}

    used = [word for word in template if word != "$A"]
    single = [{"Sequence": {"id": "A", "type_id": 0}} if word == "$A" else special(word) for word in template]
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    tokenizer = {
        "version": "1.0",
        "added_tokens": [{"id": row, "content": words[row], **flags} for row in (BOS, PAD, EOS, UNK)],
        "pre_tokenizer": {"type": "WhitespaceSplit"},
        "post_processor": {
            "type": "TemplateProcessing",
            "single": single,
            "pair": [*single, {"Sequence": {"id": "B", "type_id": 0}}],
            "special_tokens": {w: {"id": w, "ids": [words.index(w)], "tokens": [w]} for w in used},
        },
        "model": {"type": "WordLevel", "vocab": dict(words.indices), "unk_token": "<unk>"},
    }
    return {
        "tokenizer.json": tokenizer,
        "tokenizer_config.json": {"tokenizer_class": "PreTrainedTokenizerFast", **SPECIAL},
    }


def _write_tensors(weights: Mapping[str, Tensor], path: Path) -> None:
    """Writes a safetensors file: the length of a JSON header, the header, and the raw numbers."""
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    start = 0
    for key, entry in weights.items():
        stop = start + entry.numel() * entry.element_size()
        header[key] = {"dtype": "F32", "shape": list(entry.shape), "data_offsets": [start, stop]}
        start = stop
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)  # aligned
    with path.open("wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for entry in weights.values():
            file.write(entry.contiguous().numpy().astype("<f4").tobytes())
