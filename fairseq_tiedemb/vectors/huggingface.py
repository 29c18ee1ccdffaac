"""Tables in a folder of Hugging Face's transformers, or in a safetensors file beside its tokenizer.

The folder has model.safetensors, or several files and their index, config.json and the words of the rows. Names and
shapes of a file's matrices are known without its numbers.
"""

import re
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from torch import Tensor

from fairseq_tiedemb.checkpoints import table_names
from fairseq_tiedemb.checkpoints.text import parse_json
from fairseq_tiedemb.vectors.roles import tables_by_role

WEIGHTS = "model.safetensors"
FLOATS = {"F64", "F32", "F16", "BF16"}
SHOWN = 8  # names of tensors in an error message
DICTIONARIES = ("tokenizer.json", "vocab.json", "vocab.txt")
# The last parts of tables' names, as transformers has them.
INPUT = re.compile(r"(?:^|\.)(?:embed_tokens|wte|word_embeddings|embed_in|tok_embeddings|shared)\.weight$")
OUTPUT = re.compile(r"(?:^|\.)(?:lm_head|embed_out|output_projection)\.weight$")
ENCODER = re.compile(r"(?:^|\.)encoder\.")
# Names of the roles in a checkpoint of fairseq's, by which ``tables_by_role`` knows them.
FAIRSEQ_NAMES = {"in": table_names.INPUTS[1], "out": table_names.OUTPUT, "source": table_names.INPUTS[0]}
# Marks of a word's start and end, and of pieces that go on before or after them.
STARTS, END, BEFORE, AFTER = ("\u2581", "\u0120"), "</w>", "##", "@@"
# Bytes that GPT-2's spelling keeps as characters; the others follow from 256 on. Source: code of Radford et al. 2019.
KEPT = [*range(33, 127), *range(161, 173), *range(174, 256)]
BYTES = {chr(byte): byte for byte in KEPT}
BYTES |= {chr(256 + number): byte for number, byte in enumerate(sorted({*range(256)} - {*KEPT}))}


def is_tensor_file(path: Path) -> bool:
    """Whether a file is in safetensors format, by its first nine bytes and its size."""
    with path.open("rb") as file:
        start = file.read(9)
    return len(start) == 9 and int.from_bytes(start[:8], "little") <= path.stat().st_size - 8 and start[8:] == b"{"


def read_shapes(path: Path) -> dict[str, list[int]]:
    """Returns the shapes of a safetensors file's matrices of floating-point numbers, by name."""
    try:
        with safe_open(path, "pt") as file:
            entries = {name: file.get_slice(name) for name in file.keys()}
    except (SafetensorError, OSError) as error:
        raise ValueError(f"TABLE: needs a whole safetensors file; got {path} ({error}). Use another.") from None
    shapes = {name: entry.get_shape() for name, entry in entries.items() if entry.get_dtype() in FLOATS}
    return {name: shape for name, shape in shapes.items() if len(shape) == 2 and 0 not in shape}


def tensor_files(path: Path) -> dict[str, Path]:
    """Returns the file of every matrix, by the matrix's name; `path` is a folder or a safetensors file."""
    index = path / f"{WEIGHTS}.index.json"
    if index.is_file():
        files = _read(index).get("weight_map")
        return {name: path / Path(str(file)).name for name, file in files.items()} if isinstance(files, dict) else {}
    file = path / WEIGHTS if path.is_dir() else path
    if not file.is_file():
        raise ValueError(f"TABLE: needs a folder with {WEIGHTS}; got {path}, which has none. Use another.")
    return dict.fromkeys(read_shapes(file), file)


def read_matrix(path: Path, name: str | None) -> Tensor:
    """Returns a matrix of a folder or file by its name, as float32; the error for another name lists some."""
    files = tensor_files(path)
    file = files.get(str(name)) or next(iter(files.values()), path / WEIGHTS if path.is_dir() else path)
    if not file.is_file():
        raise ValueError(f"TABLE: needs all files of its index; got no {file}. Use a whole folder.")
    shapes = read_shapes(file)
    if name not in shapes:
        named = sorted(shapes, key=lambda key: -max(shapes[key]))
        shown = ", ".join(f"{key} {tuple(shapes[key])}" for key in named[:SHOWN])
        more = f" and {len(named) - SHOWN} more" if len(named) > SHOWN else ""
        use = f"one of {shown}{more}" if named else "another file, since this has none"
        raise ValueError(f"--tensor: needs the name of a matrix of {file}; got {name}. Use {use}.")
    with safe_open(file, "pt") as opened:
        return opened.get_tensor(name).float()


def read_tables(path: Path) -> dict[str, tuple[str, Tensor]]:
    """Returns name and rows of the tables in a folder or file, by role: in, out, source; tied tables are "in" alone."""
    files = tensor_files(path)
    inputs = sorted(filter(INPUT.search, files), key=lambda name: bool(ENCODER.search(name)))
    by_role = {"in": inputs[:1], "out": list(filter(OUTPUT.search, files)), "source": inputs[1:]}
    if not inputs:
        read_matrix(path, None)  # which names the matrices
    return {role: (names[0], read_matrix(path, names[0])) for role, names in by_role.items() if names}


def tables_of_roles(path: Path, role: str | None) -> dict[str, Tensor]:
    """Returns the tables of a folder or file by role, with the roles and errors of ``tables_by_role``.

    Without a table of its own, the output is the input's, unless config.json says otherwise.
    """
    tables = read_tables(path)
    config = (path if path.is_dir() else path.parent) / "config.json"
    if not config.is_file() or _read(config).get("tie_word_embeddings", True):
        tables.setdefault("out", tables["in"])
    needed = "out" if role == "sum" else role
    if needed not in (None, "tied", *tables):
        read_matrix(path, str(role))  # which names the matrices
    model = {FAIRSEQ_NAMES[part]: rows for part, (_, rows) in tables.items()}
    return tables_by_role({"model": model, "cfg": {"model": {}}}, role, path=path)


def dictionary_beside(path: Path) -> Path:
    """Returns the file of the rows' words."""
    folder = path if path.is_dir() else path.parent
    for name in DICTIONARIES:
        if (folder / name).is_file():
            return folder / name
    raise ValueError(f"--dict: needs the words of {path}; got none. Use its tokenizer.json, vocab.json or vocab.txt.")


def whole_words(words: dict[int, str]) -> dict[int, str]:
    """Returns the entries that are words, without the marks by which they differ from pieces of words.

    Marks are those of SentencePiece and GPT-2 (whose bytes become characters), WordPiece and BPE. Else all are words.
    """
    for mark in STARTS:
        marked = {row: word[1:] for row, word in words.items() if word.startswith(mark) and len(word) > 1}
        if 10 * len(marked) >= len(words):
            return marked if mark == STARTS[0] else {row: _characters(word) for row, word in marked.items()}
    ends = {row: word.removesuffix(END) for row, word in words.items() if word.endswith(END)}
    pieces = {row for row, word in words.items() if word.startswith(BEFORE) or word.endswith(AFTER)}
    return ends or {row: word for row, word in words.items() if row not in pieces}


def _characters(word: str) -> str:
    """A word of GPT-2's spelling, a character a byte, as text; an added word as it is."""
    known = BYTES.keys() >= {*word}
    return bytes(BYTES[letter] for letter in word).decode(errors="replace") if known else word


def _read(path: Path) -> dict[str, Any]:
    try:
        content = parse_json(path.read_bytes())
    except ValueError:
        content = None
    if not isinstance(content, dict):
        raise ValueError(f"TABLE: needs JSON's names and values; got {path}, which has none. Use a whole file.")
    return content
