"""Tables of transformers' folders: which are whose, what their words are, and the measures on them."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from fairseq_tiedemb.vectors.huggingface import whole_words
from fairseq_tiedemb.vectors.sources import parse_source

from ..conftest import Cli
from .common import command, exact_cosine, write_safetensors

IN, OUT = "model.embed_tokens.weight", "lm_head.weight"


def folder_of(
    path: Path,
    tensors: dict[str, Tensor],
    words: dict[str, int],
    files: int = 1,
    special: tuple[str, ...] = (),
    **config: Any,
) -> Path:
    """A folder as `save_pretrained` writes it, in one file or several with an index."""
    path.mkdir()
    (path / "config.json").write_text(json.dumps(config))
    added = [{"id": words[word], "content": word, "special": True} for word in special]
    (path / "tokenizer.json").write_text(json.dumps({"added_tokens": added, "model": {"type": "BPE", "vocab": words}}))
    if files == 1:
        write_safetensors(path / "model.safetensors", tensors)
        return path
    place = {name: f"model-{number % files + 1:05}-of-{files:05}.safetensors" for number, name in enumerate(tensors)}
    for file in set(place.values()):
        write_safetensors(path / file, {name: tensor for name, tensor in tensors.items() if place[name] == file})
    index = {"metadata": {"total_size": 1}, "weight_map": place}
    (path / "model.safetensors.index.json").write_text(json.dumps(index))
    return path


def layers(count: int) -> dict[str, Tensor]:
    return {f"model.layers.{number}.mlp.down_proj.weight": torch.ones(2, 2) for number in range(count)}


ROWS, OTHERS = torch.randn(6, 3), torch.randn(6, 3)
WORDS = {"<pad>": 0, "\u2581the": 1, "\u2581cat": 2, "s": 3, "\u2581the\u2581cat": 4}  # a row more than words
# Tensors, config.json, and the tables by role: as Gemma's and Qwen's index files have them, GPT-2, BERT, T5, FSMT.
MODELS: dict[str, tuple[dict[str, Tensor], dict[str, Any], dict[str, Tensor]]] = {
    "gemma": ({IN: ROWS, **layers(3), "model.norm.weight": torch.ones(3)}, {}, {"tied": ROWS}),
    "gemma 3": ({f"language_model.{IN}": ROWS, **layers(3)}, {"text_config": {"hidden_size": 3}}, {"tied": ROWS}),
    "small qwen": ({IN: ROWS, **layers(3)}, {"tie_word_embeddings": True}, {"tied": ROWS}),
    "large qwen": ({OUT: OTHERS, IN: ROWS, **layers(3)}, {"tie_word_embeddings": False}, {"in": ROWS, "out": OTHERS}),
    "written twice": ({OUT: ROWS, IN: ROWS, **layers(3)}, {}, {"tied": ROWS}),
    "no output": ({IN: ROWS, **layers(3)}, {"tie_word_embeddings": False}, {"in": ROWS}),
    "gpt-2": ({"wte.weight": ROWS, "wpe.weight": OTHERS}, {}, {"tied": ROWS}),
    "fsmt": (
        {
            "model.encoder.embed_tokens.weight": OTHERS + 1,
            "model.decoder.embed_tokens.weight": ROWS,
            "model.decoder.output_projection.weight": OTHERS,
        },
        {"tie_word_embeddings": False},
        {"in": ROWS, "out": OTHERS},
    ),
}


@pytest.mark.parametrize("files", [1, 2])
@pytest.mark.parametrize("name", MODELS)
def test_tables_and_their_words(name: str, files: int, tmp_path: Path) -> None:
    tensors, config, expected = MODELS[name]
    folder = folder_of(tmp_path / "model", tensors, WORDS, files, special=("<pad>",), **config)
    paths = [folder] if files > 1 else [folder, folder / "model.safetensors"]
    for path in paths:
        found = {table.name.rpartition(":")[2]: table for table in parse_source(str(path)).read()}
        assert found.keys() == expected.keys()
        for role, rows in expected.items():
            assert found[role].words == ["the", "cat", "the\u2581cat"]
            assert torch.equal(torch.from_numpy(found[role].rows_VD), rows[[1, 2, 4]])
            assert found[role].describe().endswith("3 words, 3 wide, without 1 that are no whole words")
    if name == "fsmt":
        [source] = parse_source(f"{folder}:source").read()
        assert torch.equal(torch.from_numpy(source.rows_VD), (OTHERS + 1)[[1, 2, 4]])
    [named] = parse_source(f"{folder}:{next(iter(tensors))}").read()
    assert torch.equal(torch.from_numpy(named.rows_VD), next(iter(tensors.values()))[[1, 2, 4]])


@pytest.mark.parametrize(
    ("spellings", "words"),
    [
        ("\u0120the the \u0120caf\u00c3\u00a9 \u0120na\u00c3\u00af ing", "the café naï"),  # bytes of UTF-8
        ("\u0120the \u0120<|x|>\u2028 s", "the <|x|>\u2028"),  # an added word is no bytes
        ("the ##s cat", "the cat"),
        ("the</w> s cat</w>", "the cat"),
        ("the cat@@ s", "the s"),
        ("the cat", "the cat"),
        ("\u2581 \u2581the \u2581cat s", "the cat"),
    ],
)
def test_words_without_marks(spellings: str, words: str) -> None:
    assert list(whole_words(dict(enumerate(spellings.split(" ")))).values()) == words.split(" ")


def test_measures(tmp_path: Path, cli: Cli) -> None:
    folder = folder_of(tmp_path / "model", {IN: ROWS, OUT: OTHERS}, WORDS, 2, special=("<pad>",))
    (tmp_path / "set").write_text("the cat 1\nthe cats 2\n")
    assert "has 1" in cli("similarity", f"{folder}:in", "--sets", tmp_path / "set", "--missing-as-zero").out
    out = cli("neighbours", f"{folder}:out", "--words", "the", "--count", 1).out
    nearest = max([2, 4], key=lambda row: exact_cosine(OTHERS[1].numpy(), OTHERS[row].numpy()))
    assert ["cat", "the\u2581cat"][nearest // 4] in out
    printed = cli("norms", folder, "--isotropy", "--output", tmp_path / "x.png").out
    assert f"[1] {IN}" in printed
    assert f"[2] {OUT}" in printed
    [means] = [line.split()[1:] for line in printed.splitlines() if re.match(r"mean +\d", line)]
    expected = [rows.norm(dim=1).mean().item() for rows in (ROWS, OTHERS)]
    assert list(map(float, means)) == pytest.approx(expected, rel=1e-3)


def test_refusals(tmp_path: Path) -> None:
    folder = folder_of(tmp_path / "model", {IN: ROWS, "other": ROWS}, WORDS, 2)
    unknown = folder_of(tmp_path / "unknown", {"x": ROWS}, WORDS)
    small = folder_of(tmp_path / "small", {IN: ROWS[:3]}, WORDS)
    vector = folder_of(tmp_path / "vector", {"x": ROWS[0]}, WORDS)
    (tmp_path / "empty").mkdir()
    for path, message in (
        (tmp_path / "empty", "TABLE: needs a folder with model.safetensors; got .*empty, which has none"),
        (f"{folder}:source", r"--tensor: needs the name of a matrix of .*; got source. Use one of"),
        (unknown, r"--tensor: needs the name of a matrix of .*; got None. Use one of x \(6, 3\)"),
        (
            vector,
            r"--tensor: needs the name of a matrix of .*vector/model.safetensors; got None. Use another file, since",
        ),
        (vector / "model.safetensors", "--tensor: .* matrix of .*model.safetensors; got None. Use another file, since"),
        (small, "--dict: needs one word for each of the 3 rows of .*small; got 5"),
    ):
        with pytest.raises(ValueError, match=message):
            parse_source(str(path)).read()
    with pytest.raises(ValueError, match="--parameters: needs a checkpoint of fairseq-train; got .*model. Leave it"):
        command("norms", folder, "--parameters")
    (folder / "tokenizer.json").unlink()
    with pytest.raises(ValueError, match="--dict: needs the words of .*model; got none. Use its tokenizer.json"):
        parse_source(str(folder)).read()
    for file, text, message in (
        ("config.json", "{", "TABLE: needs JSON.* got .*config.json, which has none. Use"),
        ("config.json", "[]", "TABLE: needs JSON.* got .*config.json, which has none. Use"),
        ("model.safetensors.index.json", '{"weight_map": []}', "TABLE: needs all files of its index; got no .*model.s"),
        ("model-00001-of-00002.safetensors", None, "TABLE: needs all files of its index; got no .*model-00001"),
    ):
        before = (folder / file).read_bytes()
        (folder / file).unlink()
        if text is not None:
            (folder / file).write_text(text)
        with pytest.raises(ValueError, match=message):
            parse_source(str(folder)).read()
        (folder / file).write_bytes(before)
