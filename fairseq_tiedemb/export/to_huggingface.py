"""Converts a Transformer, ours or fairseq's, to a folder that Hugging Face's transformers loads.

A translation model becomes FSMT, fairseq's own Transformer there, and a pre-norm language model XGLM. Tables are folded
(``folding``). transformers is not needed to write the folder.
"""

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import safetensors.torch
import torch
from torch import Tensor

from fairseq_tiedemb.checkpoints.table_names import INPUTS, OUTPUT
from fairseq_tiedemb.checkpoints.text import read_lines
from fairseq_tiedemb.export.folding import fold_tables
from fairseq_tiedemb.export.targets import COMMANDS, require, require_distinct
from fairseq_tiedemb.loading import checked_settings, load_model

TABLES = (*INPUTS, OUTPUT)
# Entries that have the same names there, and what is folded or computed.
LAYER = re.compile(
    r"\w+\.(layer_norm|layers\.\d+\.((self|encoder)_attn\.[kvq]_proj|(self|encoder)_attn\.out_proj|\w+_layer_norm|fc[12]))"
    r"\.(weight|bias)"
)
LEFT_OUT = re.compile(r"\w+\.(version|projection\..*|embed_positions\._float_tensor)")
SPECIAL = {"bos_token": "<s>", "pad_token": "<pad>", "eos_token": "</s>", "unk_token": "<unk>"}
BOS, PAD, EOS, _ = range(4)
# fairseq's search, which never chooses padding.
SEARCH = {"pad_token_id": PAD, "eos_token_id": EOS, "suppress_tokens": [PAD]}
OF_TRANSLATION = {"num_beams": 5, "early_stopping": True, "min_new_tokens": 1}
OF_TRANSLATION |= dict.fromkeys(("decoder_start_token_id", "forced_eos_token_id"), EOS)


class Folder(NamedTuple):
    """The content of a folder for Hugging Face's transformers."""

    weights: dict[str, Tensor]  # by name; a tied table once
    files: dict[str, Any]  # text, or what becomes JSON, by file
    about: str  # the class, and what is missing


def convert(checkpoint: Path, state: Mapping[str, Any], data: Path | None, codes: Path | None) -> Folder:
    """Returns the content of the folder of a Transformer, whose file holds `state` as torch saved it, for ``save``.

    `data` is the folder with the dictionaries, None for that of the training; `codes` are BPE codes of subword-nmt or
    fastBPE, for the tokenizer of a translation model, or None. ValueError if no class fits the model, or a dictionary
    or a part of the checkpoint is missing.
    """
    settings = checked_settings(state, str(checkpoint))
    require("huggingface", settings)
    model, task, _ = load_model(checkpoint, settings, data)
    fold_tables(model.eval().requires_grad_(False))
    weights = {key: entry for key, entry in model.state_dict().items() if not LEFT_OUT.fullmatch(key)}
    _check(weights, task)
    if hasattr(model, "encoder"):
        return _fsmt(weights, model, task, settings["model"], codes)
    if codes is not None:
        raise ValueError(f"--bpe-codes: needs a translation model, FSMT there; got {codes} for XGLM. Leave it out.")
    return _xglm(weights, model, task, settings["model"])


def save(content: Folder, folder: Path) -> None:
    """Writes all into an empty folder."""
    (folder / "model.safetensors").write_bytes(safetensors.torch.save(content.weights, {"format": "pt"}))
    for name, value in content.files.items():
        written = value if isinstance(value, str) else json.dumps(value, indent=1, ensure_ascii=False)
        (folder / name).write_text(f"{written}\n", encoding="utf-8")


def _check(weights: Mapping[str, Tensor], task: Any) -> None:
    """Raises ValueError for parts that the classes lack, and dictionaries whose words are not a row of a table each."""
    lacking = [key for key in weights if key not in TABLES and not LAYER.fullmatch(key)]
    if lacking:
        raise ValueError(f"CHECKPOINT: needs parts that FSMT or XGLM has; got {lacking[0]}. Use {COMMANDS}.")
    for key, words in zip(TABLES, (task.source_dictionary, *[task.target_dictionary] * 2), strict=True):
        require_distinct(words.symbols)
        if key in weights and len(weights[key]) != len(words):
            needed = f"a row for each of {len(words):,} words"
            raise ValueError(f"CHECKPOINT: needs {needed}; got {len(weights[key]):,} in {key}. Use {COMMANDS}.")


def _config(kind: str, architecture: str, tied: bool, options: Mapping[str, Any], **more: Any) -> dict[str, Any]:
    """config.json; what it leaves out, such as the numbers of special symbols, are fairseq's in both classes."""
    return {
        "model_type": kind,
        "architectures": [architecture],
        "dtype": "float32",
        "tie_word_embeddings": tied,
        "d_model": options["decoder_embed_dim"],
        "activation_function": options.get("activation_fn") or "relu",  # by fairseq's names
        "scale_embedding": not options.get("no_scale_embedding"),
        "max_position_embeddings": options.get("max_target_positions") or options.get("tokens_per_sample") or 1024,
        **more,
    }


def _fsmt(weights: dict[str, Tensor], model: Any, task: Any, options: Mapping[str, Any], codes: Path | None) -> Folder:
    source, target = task.source_dictionary, task.target_dictionary
    languages = [task.cfg.source_lang, task.cfg.target_lang]
    first, *others = (weights[key] for key in TABLES)
    tied = all(first.shape == other.shape and torch.equal(first, other) for other in others)
    config = _config("fsmt", "FSMTForConditionalGeneration", tied, options, langs=languages)
    config |= {"src_vocab_size": len(source), "tgt_vocab_size": len(target)}
    for side in ("encoder", "decoder"):
        config[f"{side}_layers"] = len(getattr(model, side).layers)
        config[f"{side}_attention_heads"] = options[f"{side}_attention_heads"]
        config[f"{side}_ffn_dim"] = options[f"{side}_ffn_embed_dim"]
    # --max-len-b and an end, beside the start.
    search = {**SEARCH, **OF_TRANSLATION, "max_length": 1 + min(201, model.max_decoder_positions())}
    files: dict[str, Any] = {"config.json": config, "generation_config.json": search}
    about, use = ", with its tokenizer", ": --bpe-codes FILE would make one"
    has_codes = not any(word.startswith("\u2581") for word in source.symbols)  # as SentencePiece marks words
    if codes is not None:
        files |= {"vocab-src.json": _pieces(source), "vocab-tgt.json": _pieces(target), "merges.txt": _merges(codes)}
        files["tokenizer_config.json"] = {"tokenizer_class": "FSMTTokenizer", "langs": languages, **SPECIAL}
    elif source.symbols == target.symbols:
        files |= _tokenizer(source, "$A", "</s>")
        about = ", with a tokenizer of segmented text" + f"{use} of raw text" * has_codes
    else:
        about = ", without a tokenizer" + use * has_codes
    twice = ", its decoder's table twice" if not tied and torch.equal(*others) else ""
    named = {f"model.{key}": weights[key] for key in weights if not tied or key not in (TABLES[0], TABLES[2])}
    return Folder(named, files, f"FSMT, {'tied' if tied else 'untied'}{twice}{about}")


def _xglm(weights: dict[str, Tensor], model: Any, task: Any, options: Mapping[str, Any]) -> Folder:
    words, tied = task.dictionary, torch.equal(weights[TABLES[1]], weights[TABLES[2]])
    bos = BOS if options.get("add_bos_token") else EOS
    config = _config("xglm", "XGLMForCausalLM", tied, options, vocab_size=len(words), bos_token_id=bos)
    config["num_layers"] = len(model.decoder.layers)
    config["attention_heads"], config["ffn_dim"] = options["decoder_attention_heads"], options["decoder_ffn_embed_dim"]
    files = {"config.json": config, "generation_config.json": {**SEARCH, "bos_token_id": bos}}
    files |= _tokenizer(words, *(["<s>"] if bos == BOS else []), "</s>", "$A")  # as fairseq's sentences begin
    named = {key.replace("decoder.", "model.", 1): entry for key, entry in weights.items() if key != TABLES[2]}
    if not tied:
        named["lm_head.weight"] = weights[TABLES[2]]
    return Folder(named, files, f"XGLM, {'tied' if tied else 'untied'}, with a tokenizer of segmented text")


def _pieces(words: Any) -> dict[str, int]:
    """Rows by piece as FSMT spells them: the end of a word is marked (``</w>``), not that it goes on (``@@``)."""
    special, others = words.symbols[: len(SPECIAL)], words.symbols[len(SPECIAL) :]
    pieces = [word.removesuffix("@@") if word.endswith("@@") else f"{word}</w>" for word in others]
    return {piece: row for row, piece in enumerate([*special, *pieces])}


def _merges(path: Path) -> str:
    """The pairs of BPE codes, without the counts of fastBPE; the header of subword-nmt is a pair that no word has."""
    pairs = []
    for number, line in read_lines(path, flag="--bpe-codes"):
        fields = line.strip("\r\n ").split(" ")  # a piece may be another space
        if len(fields) not in (2, 3) or fields[1] == "</w>":  # as subword-nmt 0.1 wrote it
            got, use = f"{line.strip()[:60]!r} in line {number} of {path}", "the codes of subword-nmt 0.2 or fastBPE"
            raise ValueError(f"--bpe-codes: needs lines of two pieces; got {got}. Use {use}.")
        pairs.append(" ".join(fields[:2]))
    return "\n".join(pairs)


def _tokenizer(words: Any, *template: str) -> dict[str, Any]:
    """Files of a tokenizer for text whose subwords are separated by spaces, as in the training."""
    flags = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False) | {"special": True}
    sequence, special = {"Sequence": {"id": "A", "type_id": 0}}, [word for word in template if word != "$A"]
    single = [{"SpecialToken": {"id": word, "type_id": 0}} if word in special else sequence for word in template]
    of_template = {
        "type": "TemplateProcessing",
        "single": single,
        "pair": [*single, {"Sequence": {"id": "B", "type_id": 0}}],
        "special_tokens": {word: {"id": word, "ids": [words.index(word)], "tokens": [word]} for word in special},
    }
    tokenizer = {
        "version": "1.0",
        "added_tokens": [{"id": words.index(word), "content": word, **flags} for word in SPECIAL.values()],
        "pre_tokenizer": {"type": "WhitespaceSplit"},
        "post_processor": of_template,
        "model": {"type": "WordLevel", "vocab": words.indices, "unk_token": "<unk>"},
    }
    config = {"tokenizer_class": "PreTrainedTokenizerFast", **SPECIAL}
    return {"tokenizer.json": tokenizer, "tokenizer_config.json": config}
