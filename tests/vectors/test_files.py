"""Vectors as text, matrices of safetensors files, and dictionaries: round trips, other programs' forms, bad files."""

import io
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from fairseq_tiedemb.vectors.huggingface import is_tensor_file, read_matrix
from fairseq_tiedemb.vectors.word_lists import read_rows, without_marks
from fairseq_tiedemb.vectors.word_table import read_vectors, write_vectors

from .common import random_table, table, write_safetensors

# --- text -------------------------------------------------------------------------------------------------------------


def test_float32_comes_back_bit_for_bit(tmp_path: Path) -> None:
    rows = random_table(50, 7).rows_VD * np.float32(10.0) ** np.arange(-30, 20, dtype=np.float32)[:, None]
    words = table([f"wörd{number}" for number in range(50)], rows)
    path = tmp_path / "x.vec"
    with path.open("w", encoding="utf-8") as file:
        assert write_vectors(words, file) == 0
    assert path.read_text().startswith("50 7\nwörd0 ")
    found = read_vectors(path)
    assert found.words == words.words
    assert found.rows_VD.dtype == np.float32
    assert np.array_equal(found.rows_VD, words.rows_VD)


def test_words_that_the_format_cannot_say_are_left_out() -> None:
    file = io.StringIO()
    assert write_vectors(table(["a b", "c", "", "d\u2028", "\n"], np.ones((5, 1))), file) == 4
    assert file.getvalue() == "1 1\nc 1\n"


@pytest.mark.parametrize(
    "text",
    [
        "2 3\na 1 2 3\nb 4 5 6\n",  # word2vec
        "2\t3\na\t1\t2\t3\nb\t4\t5\t6\n",
        " 2  3\na 1 2 3\nb 4 5 6\n",
        "2 3 \na 1 2 3 \nb 4 5 6 \n\n",  # word2vec.c ends lines with a space
        "a 1 2 3\nb 4 5 6\n",  # GloVe
        "\ufeffa 1 2 3\r\nb 4 5 6\r\n",
        "a\t1\t2\t3\nb\t4.0\t5e0\t6\n",
        "a\t1 2 3\nb\t4 5 6\n",
        "a 1 2 3\nb 4 5 6\na 7 8 9\n",  # the first of several
    ],
)
def test_forms_of_text(text: str, tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(text.encode())
    found = read_vectors(tmp_path / "x")
    assert found.words == ["a", "b"]
    assert found.rows_VD.tolist() == [[1, 2, 3], [4, 5, 6]]


def test_words_with_spaces_and_numbers(tmp_path: Path) -> None:
    (tmp_path / "x").write_text("a 1 2 3\n. . . 4 5 6\n1 000 7 8 9\n\u2028 1 1 1\n12 0 0 1\nNo. 1 0 0 2\n")
    found = read_vectors(tmp_path / "x")
    assert found.words[:3] == ["a", ". . .", "1 000"]
    assert found.rows_VD[:3].tolist() == [[1, 2, 3], [4, 5, 6], [7, 8, 9]]
    assert found.words[3:] == ["\u2028", "12", "No. 1"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a 1 2 3\nb 4 5\n", "needs a word and 3 finite numbers a line; got 'b 4 5' in line 2 of"),
        ("3 4\na 1 2 3\n", "needs a word and 4 finite numbers a line, as the header 3 4 says; got 'a 1 2 3' in line 2"),
        ("1 2\nking 1 0 2\n", "needs a word and 2 numbers a line, as its first line says; got more in 1 of 1 lines of"),
        ("a 1 0\nb 1 2 3\nc 1 2 3\n", "needs a word and 2 numbers a line, .*; got more in 2 of 3 lines of .*x.vec"),
        ("a 1 1_0\n", "got 'a 1 1_0' in line 1"),
        ("a 1 2 x\n", "got 'a 1 2 x' in line 1"),
        ("a 1 nan 3\n", "got 'a 1 nan 3' in line 1"),
        ("a 1 1e39 3\n", "got 'a 1 1e39 3' in line 1"),
        ("hello\n", "needs a word and some finite numbers a line; got 'hello' in line 1"),
        (f"2 {'9' * 5000}\na 1 2\n", "needs a word and .* finite numbers a line; got '2 9999"),
        ("3\t4\na 1 2 3\n", "needs a word and 4 finite numbers a line, as the header 3 4 says; got 'a 1 2 3'"),
        ("3 2\na 1 2\nb 3 4\n", "needs the 3 words of its header; got 2 in .*x.vec"),
        ("1 2\na 1 2\nb 3 4\n", "needs the 1 words of its header; got 2 in .*x.vec"),
        ("0 3\n", "needs a word at least; got .*x.vec, which has none"),
        (b"\xff\xfe\x00\x00 1 2\n", "or vectors as text, in UTF-8; got .*x.vec"),
    ],
)
def test_refused_text(text: str | bytes, message: str, tmp_path: Path) -> None:
    path = tmp_path / "x.vec"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(ValueError, match=f"TABLE: .*{message}"):
        read_vectors(path)


# --- safetensors ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16, torch.bfloat16])
def test_every_type(dtype: torch.dtype, tmp_path: Path) -> None:
    torch.manual_seed(1)
    weight = torch.randn(5, 3).to(dtype)
    path = write_safetensors(tmp_path / "x", {"other": torch.ones(2, dtype=dtype), "wte": weight})
    assert is_tensor_file(path)
    found = read_matrix(path, "wte")
    assert found.dtype == torch.float32
    assert torch.equal(found, weight.float())


@pytest.mark.parametrize("name", [None, "nothing", "vector", "whole"])
def test_refuses_what_is_no_matrix(name: str | None, tmp_path: Path) -> None:
    tensors = {"vector": torch.ones(3), "whole": torch.ones(2, 2).long(), "wte": torch.ones(9, 2)}
    tensors |= {f"layer{number}": torch.ones(2, 2) for number in range(9)}
    path = write_safetensors(tmp_path / "x.safetensors", tensors)
    message = rf"--tensor: needs .*x.safetensors; got {name}. Use one of wte .9, 2., .* and 2 more"
    with pytest.raises(ValueError, match=message):
        read_matrix(path, name)


@pytest.mark.parametrize(
    "changes",
    [
        *(
            {"data_offsets": places}
            for places in ([0, 10**6], [-8, 64], [0.0, 72.0], [0, 10**30], None, [0, 64], [8, 80])
        ),
        *({"shape": shape} for shape in ([True, 18], {"9": 2}, [10**9, 10**9])),
        {"dtype": "F31"},
    ],
)
def test_refuses_headers_that_lie(changes: dict[str, Any], tmp_path: Path) -> None:
    path = write_safetensors(tmp_path / "x", {"wte": torch.ones(9, 2)}, wte=changes)
    with pytest.raises(
        ValueError, match=r"TABLE: needs a whole safetensors file; got .*x \(.*header: .*\). Use another"
    ):
        read_matrix(path, "wte")


def test_refuses_damaged_headers(tmp_path: Path) -> None:
    for length, header in ((10, b"{"), (5, b"{]]]]"), (7, b'{"a":1}'), (50_000, b'{"a":' * 10_000)):
        (tmp_path / "x").write_bytes(struct.pack("<Q", length) + header)
        with pytest.raises(ValueError, match="TABLE: needs a whole safetensors file; got .*x "):
            read_matrix(tmp_path / "x", "wte")


def test_text_is_no_tensor_file(tmp_path: Path) -> None:
    for content in (b"400000 {0", b"\x05", b""):
        (tmp_path / "x").write_bytes(content)
        assert not is_tensor_file(tmp_path / "x")


# --- dictionaries -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("dict.txt", "the 9\na b 5\nx 1 #fairseq:overwrite\n", {2: "</s>", 3: "<unk>", 4: "the", 5: "a b", 6: "x"}),
        ("dict.txt", "the 9\r\nx\u2028y 5\r\n", {2: "</s>", 3: "<unk>", 4: "the", 5: "x\u2028y"}),
        ("vocab.txt", "[PAD]\n[CLS]\nthe\n##s\n", {2: "the", 3: "##s"}),
        ("vocab.json", '{"the": 1, "<pad>": 0, "x": 5}', {1: "the", 5: "x"}),
        ("vocab.json", '{"model": 1, "added_tokens": 0}', {0: "added_tokens", 1: "model"}),  # GPT-2 has such tokens
        (
            "tokenizer.json",
            '{"model": {"vocab": {"<|end|>": 0, "Ġthe": 1}}, "added_tokens": '
            '[{"id": 0, "content": "<|end|>", "special": true}, {"id": 2, "content": "more"}]}',
            {1: "Ġthe", 2: "more"},
        ),
        ("tokenizer.json", '{"model": {"vocab": [["<s>", 0.0], ["▁the", -1.5]]}}', {1: "▁the"}),
    ],
)
def test_dictionaries(name: str, content: str, words: dict[int, str], tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(content.encode())
    assert without_marks(read_rows(tmp_path / name)) == words


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("dict.txt", "the 9\nof\n", "needs lines `word count`; got 'of' in line 2 of .*dict.txt"),
        ("dict.txt", "the 9\nof x\n", "needs lines `word count`; got 'of x' in line 2 of .*dict.txt"),
        ("dict.txt", f"the 9\nof {'9' * 5000}\n", "needs lines `word count`; got 'of 999.*' in line 2 of .*dict.txt"),
        ("dict.txt", "the 9\nof -3\n", "needs lines `word count`; got 'of -3' in line 2 of .*dict.txt"),
        ("dict.txt", "the 9\n 3\n", "needs lines `word count`; got ' 3' in line 2 of .*dict.txt"),
        ("dict.txt", b"\xff 1\n", "needs UTF-8 text; got .*dict.txt .*codec"),
        ("vocab.json", "{", "got .*vocab.json"),
        ("vocab.json", "[1, 2]", "got .*vocab.json"),
        ("vocab.json", '{"the": 0, "of": -1}', "got .*vocab.json .row -1 of 'of'"),
        ("vocab.json", '{"the": 0, "of": true}', "got .*vocab.json .row True of 'of'"),
        ("vocab.json", '{"the": 0, "of": 0}', "got .*vocab.json .2 tokens in 1 rows"),
        ("tokenizer.json", '{"model": {"vocab": {}}, "added_tokens": [{"id": -2, "content": "x"}]}', "row -2 of 'x'"),
        ("tokenizer.json", '{"model": {"merges": 1}}', "got .*tokenizer.json .'vocab'"),
        ("missing.txt", None, r"got .*missing.txt \(No such file"),
    ],
)
def test_refused_dictionaries(name: str, content: str | bytes | None, message: str, tmp_path: Path) -> None:
    if content is not None:
        (tmp_path / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(ValueError, match=f"--dict: .*{message}"):
        read_rows(tmp_path / name)
