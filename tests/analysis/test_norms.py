"""Row norms: which tables are found, the statistics against numpy, the pictures, and what is refused."""

import hashlib
import re
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
import torch

from fairseq_tiedemb.analysis import norms
from fairseq_tiedemb.checkpoints.table_names import PADDING_ROW

from ..conftest import Cli
from ..vectors import common

SPECIAL = 4  # <s>, <pad>, </s>, <unk>
SVG = "{http://www.w3.org/2000/svg}"


def command(*args: object) -> int:
    return common.command("norms", *args)


def save(path: Path, **model: torch.Tensor) -> Path:
    torch.save({"model": {name.replace("__", "."): tensor for name, tensor in model.items()}}, path)
    return path


def table(rows: int = 20, width: int = 3) -> torch.Tensor:
    """A table whose row v has norm v + 1, and whose padding row is far from the others."""
    directions = torch.nn.functional.normalize(torch.randn(rows, width, dtype=torch.float64), dim=1)
    lengths = torch.arange(1, rows + 1, dtype=torch.float64)
    lengths[PADDING_ROW] = 1e6
    return directions * lengths.unsqueeze(1)


def write_dictionary(path: Path, counts: list[int]) -> Path:
    path.write_text("".join(f"word{number} {count}\n" for number, count in enumerate(counts)))
    return path


def columns(text: str) -> dict[str, list[str]]:
    """The printed lines by their first word."""
    return {line.split()[0]: line.split()[1:] for line in text.splitlines() if line.strip()}


# fairseq's and ours: untied and tied, factorised, adaptive, LSTM, in ensembles' and wrappers' prefixes.
TABLES = """
decoder.embed_tokens.weight  encoder.embed_tokens.weight  embed_tokens.weight  decoder.output_projection.weight
decoder.output.weight  decoder.embed_out  decoder.fc_out.weight  decoder.embed_tokens.table.weight
decoder.output_projection.layer.weight  decoder.embed_tokens.embeddings.0.0.weight
decoder.adaptive_softmax.head.word_proj.weight  encoder.sentence_encoder.embed_tokens.weight
"""
OTHERS = """
decoder.layers.0.fc1.weight  decoder.layers.0.self_attn.out_proj.weight  decoder.embed_positions.weight
decoder.embed_tokens.embeddings.0.1.weight  decoder.embed_tokens.projection.weight
decoder.output_projection.factor.weight  encoder.layer.0.output.dense.weight  decoder.output.bias
"""


def test_names_of_tables() -> None:
    for name in TABLES.split():
        (found,) = norms.table_norms({name: table(), "decoder.other": torch.ones(20, 3)}, path=Path("x"))
        assert found.names == [name]
        np.testing.assert_allclose(found.values, [1, *range(3, 21)])
    for name in ("decoder.embed_tokens.embeddings.2.0.weight", "d.adaptive_softmax.tail.0.2.weight"):
        (found,) = norms.table_norms({name: table()}, path=Path("x"))
        assert (len(found.values), found.values.max()) == (20, pytest.approx(1e6))  # a later band pads no text
    message = "TABLE: needs a model with an embedding table .*; got x.pt, which has none"
    for name in OTHERS.split():
        with pytest.raises(ValueError, match=message):
            norms.table_norms({name: table(), "decoder.output.weight": torch.ones(7)}, path=Path("x.pt"))


def test_statistics(tmp_path: Path, cli: Cli) -> None:
    weight = torch.zeros(1000, 2).half()
    weight[:, 0] = torch.rand(1000) + 1
    path = save(tmp_path / "a.pt", decoder__embed_tokens__weight=weight)
    lengths = np.delete(weight[:, 0].double().numpy(), PADDING_ROW)
    printed = columns(cli("norms", path).out)
    assert printed["rows"] == ["999"]
    expected = {
        "min": lengths.min(),
        **{f"{part}%": np.quantile(lengths, part / 100) for part in (1, 5, 50, 99)},
        **{name: getattr(lengths, name)() for name in ("max", "mean", "std")},
    }
    assert {name: printed[name] for name in expected} == {name: [f"{each:.4g}"] for name, each in expected.items()}


def test_isotropy_is_that_of_the_definitions(tmp_path: Path, cli: Cli) -> None:
    rows = table(9, 4) / 3
    out = cli("norms", save(tmp_path / "x.pt", embed_tokens__weight=rows), "--isotropy").out
    printed = {line[:22].strip(): float(line.split()[-1]) for line in out.splitlines()[-6:]}
    words = [row for number, row in enumerate(rows.numpy()) if number != PADDING_ROW]
    cosines = [a @ b / np.linalg.norm(a) / np.linalg.norm(b) for i, a in enumerate(words) for b in words[:i]]
    _, values, directions = np.linalg.svd(np.array(words))
    z = [sum(np.exp(a @ word) for word in words) for a in (*directions, *-directions)]
    assert printed["mean cosine"] == pytest.approx(np.mean(cosines), rel=1e-3)
    assert printed["partition ratio"] == pytest.approx(min(z) / max(z), rel=1e-3)
    chosen = [printed[f"singular value, {place}"] for place in ("1st", "2nd", "median", "last")]
    assert chosen == pytest.approx([*values[:2], np.median(values), values[-1]], rel=1e-3)


@pytest.mark.parametrize("size", [2, 4])  # with the row of padding, which is left out
def test_singular_values_of_few_and_of_even_rows(size: int, tmp_path: Path, cli: Cli) -> None:
    rows = table(size, 9)
    rows[-1] = rows[0] * (1 + 1e-6)
    out = cli("norms", save(tmp_path / "x.pt", embed_tokens__weight=rows.double()), "--isotropy").out
    values = np.linalg.svd(np.delete(rows.double().numpy(), PADDING_ROW, 0), compute_uv=False)
    printed = [float(line.split()[-1]) for line in out.splitlines()[-4:]]
    second = values[1] if len(values) > 1 else np.nan
    expected = [values[0], second, np.median(values), values[-1]]
    assert printed == pytest.approx(expected, rel=1e-3, abs=1e-6, nan_ok=True)


def test_isotropy_leaves_out_rows_of_zeros(tmp_path: Path, cli: Cli) -> None:
    rows = torch.cat((torch.ones(4, 4), torch.zeros(2, 4)))
    out = cli("norms", save(tmp_path / "x.pt", embed_tokens__weight=rows), "--isotropy").out
    assert re.search(r"mean cosine +1\n", out)


def test_isotropy_of_one_word_has_no_mean_cosine(tmp_path: Path, cli: Cli) -> None:
    out = cli("norms", save(tmp_path / "x.pt", embed_tokens__weight=table(2, 4)), "--isotropy").out
    assert re.search(r"mean cosine +nan\n", out)


def test_norms_of_all_parameters(tmp_path: Path, cli: Cli) -> None:
    embedding, square, bias = table(), torch.full((2, 2), 3.0), torch.tensor([3.0, 4.0], dtype=torch.float16)
    tables = {"embed_tokens__weight": embedding, "output__weight": embedding.clone()}
    others = {"hidden": square, "\x1b[2J\u202e\n": square.T.clone(), "bias": bias, "steps": torch.tensor(7)}
    path = save(tmp_path / "x.pt", **tables, **others, first=torch.zeros(2), second=torch.zeros(1, 2))
    printed = cli("norms", path).out
    assert "Frobenius" not in printed
    assert printed.splitlines()[0] == "[1] embed_tokens.weight = output.weight"
    lines = cli("norms", path, "--parameters").out.split("Frobenius norm of")[1].splitlines()[1:]
    assert {line.split("  ", 1)[0]: line.split()[-1] for line in lines} == {
        "embed_tokens.weight = output.weight": f"{np.sqrt((embedding.numpy() ** 2).sum()):.4g}",
        r"hidden = \x1b[2J\u202e\n": "6",  # which cannot command the terminal
        "bias": "5",
        "first": "0",
        "second": "0",
    }
    assert "20 x 3" in lines[0]


def test_norms_by_frequency_of_the_words_of_one_side(tmp_path: Path, cli: Cli) -> None:
    """Two tables of one size with words of two languages: a dictionary is that of one of them."""
    kept = {}
    for side, words in (("source", "ab"), ("target", "cd"), (None, "dc")):
        (tmp_path / words).write_text("".join(f"{word} 1\n" for word in words))
        text = "\n".join(["<s>", "<pad>", "</s>", "<unk>", *words])
        kept[side] = {"size": SPECIAL + 2, "sha256": hashlib.sha256(text.encode()).hexdigest()}
    model = {f"{side}.embed_tokens.weight": table(SPECIAL + 2) for side in ("encoder", "decoder")}
    path = tmp_path / "x.pt"
    state = {"model": model, "task_state": {"dictionaries_of_training": kept}}
    torch.save(state, path)
    for words, label in (("ab", "[1]"), ("cd", "[2]")):
        out = cli("norms", path, "--dictionary", tmp_path / words).out
        heads = [line.split() for line in out.splitlines() if line.startswith("mean norm")]
        assert heads == [["mean", "norm,", "words", "by", "frequency", label]]
    with pytest.raises(ValueError, match="--dictionary: .* got .*dc, with other words"):
        command(path, "--dictionary", tmp_path / "dc")
    torch.save({"model": dict.fromkeys(model, table(SPECIAL + 2)), "task_state": state["task_state"]}, path)
    cli("norms", path, "--dictionary", tmp_path / "cd")  # of a table that both sides share


def test_norms_by_frequency(tmp_path: Path, cli: Cli) -> None:
    rows = SPECIAL + 200
    weight = torch.zeros(rows, 2)
    counts = np.random.default_rng(1).permutation(200) + 1
    counts[7] = 0  # madeupword
    for row, count in enumerate(counts, SPECIAL):
        # By rank: 200 -> 1, 199 -> 2, ...; the one that never occurs would spoil any mean.
        weight[row, 1] = 201 - count if count else 1e9
    path = save(tmp_path / "a.pt", decoder__embed_tokens__weight=weight, encoder__embed_tokens__weight=table(30))
    dictionary = write_dictionary(tmp_path / "dict.txt", counts.tolist())
    lines = cli("norms", path, "--dictionary", dictionary).out.splitlines()
    start = next(number for number, line in enumerate(lines) if line.startswith("mean norm"))
    # Of the two tables, the dictionary has the size of the first.
    assert lines[start].split()[-1] == "[1]"
    bands = {line.split()[0]: float(line.split()[1]) for line in lines[start + 1 :]}
    seen = sorted(201 - counts[counts > 0])
    expected = {"1-10": seen[:10], "11-100": seen[10:100], "101-199": seen[100:]}
    assert bands == {name: pytest.approx(np.mean(band), rel=1e-3) for name, band in expected.items()}


def test_the_picture_has_every_table_and_the_frequencies(tmp_path: Path) -> None:
    path = save(tmp_path / "a.pt", encoder__embed_tokens__weight=table(), decoder__output__weight=table(24))
    dictionary = write_dictionary(tmp_path / "dict.txt", list(range(1, 21)))
    for arguments, axes in (([], 1), (["--dictionary", dictionary], 2)):
        picture = tmp_path / "norms.svg"
        assert command(path, "--output", picture, *arguments) == 0
        svg = ElementTree.parse(picture).getroot()
        assert sum(group.get("id", "").startswith("axes_") for group in svg.iter(f"{SVG}g")) == axes
        text = picture.read_text()  # matplotlib leaves each text as a comment
        assert all(each in text for each in ("norm of a row", "encoder.embed_tokens.weight", "decoder.output.weight"))
        assert ("frequency of the word" in text) == (axes == 2)
    path = save(tmp_path / "b.pt", decoder__embed_tokens__weight=torch.zeros(10, 2))
    assert command(path, "--output", tmp_path / "norms.PNG") == 0
    assert (tmp_path / "norms.PNG").read_bytes().startswith(b"\x89PNG")


def test_refusals(tmp_path: Path) -> None:
    path = save(tmp_path / "a.pt", decoder__embed_tokens__weight=table())
    save(tmp_path / "nan.pt", decoder__embed_tokens__weight=table().index_fill(0, torch.tensor(5), torch.nan))
    (tmp_path / "broken.txt").write_text("a line without a number\n")
    write_dictionary(tmp_path / "short.txt", [3])
    write_dictionary(tmp_path / "zeros.txt", [0] * 16)
    picture = tmp_path / "p.png"
    for arguments, message in (
        (["none.pt"], "TABLE: needs a checkpoint; got .*none.pt"),
        (["nan.pt"], "TABLE: needs finite weights; got .*nan.pt with 3 of 60 numbers of decoder.embed"),
        (["a.pt", "--dictionary", "none.txt"], "--dictionary: needs a text file; got .*none.txt"),
        (["a.pt", "--dictionary", "broken.txt"], "--dictionary: needs lines `word count`; got 'a line .* of .*broken"),
        (["a.pt", "--dictionary", "a.pt"], "--dictionary: needs UTF-8 text; got .*a.pt"),
        (["a.pt", "--dictionary", "zeros.txt"], "--dictionary: needs counts above 0; got .*zeros.txt, without any"),
        (["a.pt", "--dictionary", "short.txt"], r"as a table has rows \(20\); got 5, .* Use one for these rows, or"),
    ):
        paths = [each if each.startswith("--") else tmp_path / each for each in arguments]
        with pytest.raises(ValueError, match=message):
            command(*paths, "--output", picture)
    assert not picture.exists()
    with pytest.raises(ValueError, match="--output: needs a name that ends in one of .*png.*; got .*norms.txt"):
        command(path, "--output", tmp_path / "norms.txt")
