"""Folders for transformers: its classes score and translate as fairseq does."""

import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from fairseq_tiedemb.cli import main
from fairseq_tiedemb.sharing import SHARING_METHODS, SharingMethod

from ..conftest import Cli
from ..crossing import crossed
from ..untrained import write_checkpoint as untrained
from .test_to_ctranslate2 import (
    ALL,
    BEAM,
    DECODER,
    FACTORS,
    LONGEST,
    NARROW,
    OF_ENCODER,
    SIZES,
    encode,
    search,
    sentences,
    write_checkpoint,
)
from .test_to_fairseq import FOLDED

needs_transformers = pytest.mark.skipif(
    "not __import__('importlib.util').util.find_spec('transformers')",
    reason="needs transformers: pip install transformers sacremoses",
)
LM = ("--task", "language_modeling", "--arch", "tied_transformer_lm", "--tokens-per-sample", 60, *SIZES)
LM += ("--decoder-input-dim", 16, "--decoder-output-dim", 16, "--decoder-normalize-before")
MIN_LENGTH = 3
SEARCH: dict[str, Any] = {"num_beams": BEAM, "num_return_sequences": BEAM, "min_new_tokens": MIN_LENGTH}
TRANSLATION = {
    "untied": [],
    "decoder": [DECODER, "--no-scale-embedding", "--activation-fn", "gelu_accurate"],
    "all": [ALL],
    "factors": [ALL, *FACTORS, "--projection"],
    "narrow": NARROW,
}
LANGUAGE_MODELS = {
    "untied": ["--add-bos-token"],
    "tied": [DECODER, "--activation-fn", "relu"],
    "factors": [DECODER, *FACTORS],
    "narrow": [*NARROW, "--decoder-input-dim", 10, "--projection"],
}


def export(checkpoint: Path, output: Path, *flags: object) -> None:
    assert main(["export", str(checkpoint), str(output), "--to", "huggingface", *map(str, flags)]) == 0


def speaking(path: Path, data: Path, *flags: object) -> tuple[Any, Any]:
    """As `write_checkpoint`, but padding is as probable as the end: fairseq's search never chooses it."""
    model, task = write_checkpoint(path, data, *flags)
    with torch.no_grad():
        model.decoder.output_projection.weight[task.target_dictionary.pad(), 0] = 1.2
    torch.save({**torch.load(path, weights_only=False), "model": model.state_dict()}, path)
    return model, task


def header(folder: Path) -> dict[str, Any]:
    """What the safetensors file says of its tensors."""
    data = (folder / "model.safetensors").read_bytes()
    found = json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])
    del found["__metadata__"]
    return found


@needs_transformers
@pytest.mark.parametrize(("name", "method"), crossed(TRANSLATION, FOLDED))
def test_fsmt_scores_and_translates_alike(
    name: str, method: str, parallel_data: Path, text_folder: Path, tmp_path: Path
) -> None:
    from transformers import AutoTokenizer, FSMTForConditionalGeneration

    flags = ("--arch", "tied_transformer", "--sharing-method", method, *OF_ENCODER, *SIZES, *TRANSLATION[name])
    model, task = speaking(tmp_path / "model.pt", parallel_data, *flags)
    export(tmp_path / "model.pt", tmp_path / "out")
    theirs, missing = FSMTForConditionalGeneration.from_pretrained(tmp_path / "out", output_loading_info=True)
    assert all("embed_positions" in key for keys in missing.values() for key in keys)  # which are computed
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "out")
    texts = sentences(text_folder, 4)
    sources = [encode(task.source_dictionary, text) for text in texts]
    inputs = tokenizer([" ".join(text) for text in texts], padding=True, return_tensors="pt")
    for ids, source in zip(inputs.input_ids, sources, strict=True):
        assert ids[ids != 1].tolist() == source.tolist()
    previous = torch.tensor([[2, 4, 5, 6]] * 4)
    with torch.no_grad():
        lengths = inputs.attention_mask.sum(1)
        expected = torch.cat([model(s[None], lengths[i : i + 1], previous[:1])[0] for i, s in enumerate(sources)])
        found = theirs(inputs.input_ids, inputs.attention_mask, decoder_input_ids=previous, use_cache=False).logits
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)
    hypotheses = search(model, task, sources, min_len=MIN_LENGTH)
    generated = theirs.generate(**inputs, **SEARCH, max_length=LONGEST).tolist()
    words = task.target_dictionary
    expected = [[words.eos(), *map(words.index, each), words.eos()] for found in hypotheses for each, _ in found]
    assert generated == expected
    assert len({*map(str, generated)}) >= BEAM
    tied = name == "all" and method in ("plain", "l2-input")
    assert theirs.config.tie_word_embeddings == tied
    of_search = theirs.generation_config
    assert (of_search.num_beams, of_search.min_new_tokens, of_search.max_length) == (
        5,
        1,
        1 + min(201, model.max_decoder_positions()),
    )
    tables = [key for key in header(tmp_path / "out") if "embed_tokens" in key or "output_projection" in key]
    assert len(tables) == (1 if tied else 3)


@needs_transformers
@pytest.mark.parametrize(("name", "method"), crossed(LANGUAGE_MODELS, FOLDED))
def test_xglm_scores_and_continues_alike(
    name: str, method: str, lm_data: Path, text_folder: Path, tmp_path: Path
) -> None:
    from transformers import AutoTokenizer, XGLMForCausalLM

    model, task = speaking(tmp_path / "model.pt", lm_data, *LM, "--sharing-method", method, *LANGUAGE_MODELS[name])
    export(tmp_path / "model.pt", tmp_path / "out")
    theirs, missing = XGLMForCausalLM.from_pretrained(tmp_path / "out", output_loading_info=True)
    assert not any(missing.values())
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "out")
    words, adds = task.dictionary, name == "untied"
    for text in sentences(text_folder, 3):
        ids = tokenizer(" ".join(text), return_tensors="pt").input_ids
        assert ids[0].tolist() == [*([words.bos()] if adds else []), words.eos(), *encode(words, text)[:-1].tolist()]
        with torch.no_grad():
            torch.testing.assert_close(theirs(ids).logits, model(ids)[0], rtol=1e-5, atol=1e-5)
    first = torch.tensor([[theirs.generation_config.bos_token_id]])
    assert first.item() == (words.bos() if adds else words.eos())
    [expected] = search(model, task, [first[0]], min_len=MIN_LENGTH, bos_token=first.item())
    found = theirs.generate(first, **SEARCH, max_length=LONGEST)
    assert found.tolist() == [[first.item(), *map(words.index, each), words.eos()] for each, _ in expected]
    tied = name == "tied" and method in ("plain", "l2-input")
    assert theirs.config.tie_word_embeddings == tied == ("lm_head.weight" not in header(tmp_path / "out"))


@needs_transformers
def test_the_tokenizer_cuts_as_the_training_did(tmp_path: Path) -> None:
    from transformers import AutoTokenizer, FSMTForConditionalGeneration

    data = tmp_path / "data"
    data.mkdir()
    for language, pieces in (("en", ["lo@@", "w", "er", "w@@", "low"]), ("de", ["nie@@", "drig"])):
        (data / f"dict.{language}.txt").write_text("".join(f"{piece} 9\n" for piece in pieces))
    (tmp_path / "codes").write_text("#version: 0.2\nl o\ne r</w>\n")
    flags = ("--arch", "transformer", "--source-lang", "en", "--target-lang", "de", *OF_ENCODER, *SIZES)
    _, task = untrained(tmp_path / "model.pt", data, *flags)
    export(tmp_path / "model.pt", tmp_path / "out", "--bpe-codes", tmp_path / "codes")
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "out")
    assert tokenizer("low lower")["input_ids"] == encode(task.source_dictionary, "lo@@ w lo@@ w@@ er".split()).tolist()
    target = encode(task.target_dictionary, ["nie@@", "drig"])
    assert tokenizer.decode(target, skip_special_tokens=True) == "niedrig"
    assert FSMTForConditionalGeneration.from_pretrained(tmp_path / "out").config.tgt_vocab_size == 6


def test_what_is_missing_is_said(tmp_path: Path, parallel_data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = tmp_path / "data"
    data.mkdir()
    pieces = shutil.copytree(data, tmp_path / "pieces")
    of_sentencepiece = "\N{LOWER ONE EIGHTH BLOCK}a"
    for folder, source, target in ((data, "cba", "abcde"), (pieces, [of_sentencepiece], [of_sentencepiece])):
        for language, words in (("src", source), ("tgt", target)):
            (folder / f"dict.{language}.txt").write_text("".join(f"{word} 9\n" for word in words))
    flags = ("--arch", "transformer", "--source-lang", "src", "--target-lang", "tgt", *OF_ENCODER, *SIZES)
    for folder, sharing, said in (
        (data, [DECODER], "FSMT, untied, its decoder's table twice, without a tokenizer: --bpe-codes FILE would make"),
        (parallel_data, [ALL], "FSMT, tied, with a tokenizer of segmented text: --bpe-codes FILE would make one"),
        (pieces, [ALL], "FSMT, tied, with a tokenizer of segmented text\n"),
    ):
        untrained(tmp_path / "model.pt", folder, *flags, *sharing)
        export(tmp_path / "model.pt", tmp_path / f"out-{folder.name}")
        assert said in capsys.readouterr().out


TIED_TRANSFORMER = ("--arch", "tied_transformer", *OF_ENCODER, *SIZES)
REFUSALS: dict[str, tuple[tuple[Any, ...], list[str], str]] = {
    "distance": ((*TIED_TRANSFORMER, "--sharing-method", "distance"), [], "distance, .*'s models have none"),
    "P's bias": ((*TIED_TRANSFORMER, DECODER, "--projection", "--projection-bias"), [], "got --projection-bias, which"),
    "fixnorm": ((*TIED_TRANSFORMER, "--sharing-method", "fixnorm"), [], "a matrix and a bias; got --sharing-method fi"),
    "pre-norm": ((*TIED_TRANSFORMER, "--encoder-normalize-before"), [], "as FSMT is; got --encoder-normalize-before"),
    "post-norm": (LM[:-1], [], "pre-norm language model, as XGLM is; got one without --decoder-normalize-before. Use"),
    "learned": ((*LM, "--decoder-learned-pos"), [], "XGLM's layers; got --decoder-learned-pos. Use --to fairseq, or"),
    "a bias": ((*LM, "--sharing-method", "own"), [], "parts that FSMT or XGLM has; got decoder.output_projection.bias"),
    "rows": ((*LM, "--output-dictionary-size", 10), [], "a row for each of .* words; got .* in decoder.embed_tokens"),
    "widths": (
        (*TIED_TRANSFORMER, "--encoder-embed-dim", 8),
        [],
        "one width, as FSMT has; got --encoder-embed-dim 8 and --decoder-embed-dim 16. Use .*--to ctranslate2, or",
    ),
    "codes": (LM, ["--bpe-codes", "codes"], "--bpe-codes: needs a translation model, FSMT there; got codes for XGLM"),
    "old codes": (TIED_TRANSFORMER, ["--bpe-codes", "old"], "--bpe-codes: needs lines of two .*; got 'o </w>' in li"),
    "binary codes": (TIED_TRANSFORMER, ["--bpe-codes", "spm.model"], "--bpe-codes: needs UTF-8 .*spm.model .*'utf-8'"),
    "no codes": (TIED_TRANSFORMER, ["--bpe-codes", "words"], "--bpe-codes: needs lines of two .*; got 'a' in line 1"),
    "quantization": (LM, ["--quantization", "int8"], "--quantization: needs --to ctranslate2; got int8. Leave it out"),
}


def test_words_that_are_twice_in_a_dictionary_are_refused(lm_data: Path, tmp_path: Path, cli: Cli) -> None:
    data = shutil.copytree(lm_data, tmp_path / "data")
    with (data / "dict.txt").open("a") as file:
        file.write("</s> 3 #fairseq:overwrite\n")
    untrained(tmp_path / "model.pt", data, *LM)
    err = cli("export", tmp_path / "model.pt", tmp_path / "out", "--to", "huggingface", status=2).err
    assert "--data: needs dictionaries without repeated words; got '</s>' twice. Use" in err


@pytest.mark.parametrize("name", REFUSALS)
def test_what_no_class_has_is_refused(
    name: str, lm_data: Path, parallel_data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cli: Cli
) -> None:
    flags, options, message = REFUSALS[name]
    own = SharingMethod(name="own", summary="", source="", feature_map=lambda width: nn.Linear(width, width))
    monkeypatch.setitem(SHARING_METHODS, "own", own)
    monkeypatch.chdir(tmp_path)
    Path("codes").write_text("a b\n")
    Path("old").write_text("l\u00a0 b\no </w>\n")
    Path("words").write_text("a\n")
    Path("spm.model").write_bytes(b"\n\xc0")
    untrained(Path("model.pt"), lm_data if "language_modeling" in flags else parallel_data, *flags)
    err = cli("export", "model.pt", "out", "--to", "huggingface", *options, status=2).err
    assert re.search(message, err), err
