"""The commands on word vectors as they are run: on checkpoints of stock fairseq's and ours, safetensors files, text."""

import functools
import hashlib
import json
import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from fairseq_tiedemb.checkpoints.dictionaries import FAIRSEQ_WORDS
from fairseq_tiedemb.checkpoints.reading import read_checkpoint
from fairseq_tiedemb.vectors.sources import Source, parse_source
from fairseq_tiedemb.vectors.word_lists import read_rows
from fairseq_tiedemb.vectors.word_table import read_vectors

from .. import untrained
from ..conftest import Cli, RunCommand
from ..hidden import without_fairseq
from .common import command, exact_cosine, exact_spearman, write_checkpoint, write_dictionary, write_safetensors

TRANSFORMER = "--decoder-embed-dim 8 --decoder-ffn-embed-dim 8 --decoder-input-dim 8 --decoder-output-dim 8"
STOCK = {
    "lstm_lm": "--arch lstm_lm --decoder-embed-dim 8 --decoder-hidden-size 8 --decoder-out-embed-dim 8".split(),
    "transformer_lm": f"--arch transformer_lm {TRANSFORMER} --decoder-layers 1 --decoder-attention-heads 2".split(),
}
TIED = "--share-decoder-input-output-embed"
UPDATE = "--task language_modeling --optimizer sgd --lr 1 --max-update 1 --max-tokens 400 --tokens-per-sample 20"
UPDATE = [*UPDATE.split(), "--num-workers", "0", "--disable-validation"]


@pytest.fixture(scope="session")
def stock(lm_data: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """`stock(arch, *flags)` is a checkpoint as fairseq alone saves it, which does not tell its words."""
    folder = tmp_path_factory.mktemp("stock")

    @functools.cache
    def stock(arch: str, *flags: str) -> Path:
        path = folder / f"{arch}-{len(flags)}.pt"
        untrained.write_checkpoint(path, lm_data, *UPDATE, *STOCK[arch], *flags)
        torch.save({**torch.load(path, weights_only=False), "task_state": {}}, path)
        return path

    return stock


@pytest.mark.parametrize(("arch", "output"), [("lstm_lm", "fc_out"), ("transformer_lm", "output_projection")])
def test_stock_checkpoints(
    arch: str, output: str, stock: Callable[..., Path], lm_data: Path, tmp_path: Path, cli: Cli
) -> None:
    untied, tied = stock(arch), stock(arch, TIED)
    (tmp_path / "set.txt").write_text("a b 1\nc D 2\ne f 3.5\ng h 2\nno b 1\n")
    printed = cli("similarity", untied, tied, "--sets", tmp_path / "set.txt").out.splitlines()
    assert [line.split(":")[1] for line in printed[:3]] == ["in", "out", "tied"]
    words = [line.split()[0] for line in (lm_data / "dict.txt").read_text().splitlines()]
    model = torch.load(untied, weights_only=False)["model"]
    rhos = []
    for weight in (model["decoder.embed_tokens.weight"], model[f"decoder.{output}.weight"]):
        row = {word: weight[number].numpy() for number, word in enumerate(words, start=4)}
        pairs = ("ab", "cd", "ef", "gh")
        rhos.append(f"{exact_spearman([1, 2, 3.5, 2], [exact_cosine(row[a], row[b]) for a, b in pairs]):.3f}")
    fields = printed[-1].replace("(", " ").split()
    assert fields[:3] == ["set", "4", "5"]
    assert [fields[3], fields[7]] == rhos
    printed = cli("correlation", untied, f"{tied}:tied").out.splitlines()
    assert len(printed[-2].split()) == 3  # rho of in and out, in and tied
    assert len(printed[-1].split()) == 2


OURS = ("--arch", "tied_lstm_lm", "--decoder-embed-dim", 8, "--decoder-hidden-size", 8)


@pytest.mark.parametrize(
    ("arch", "user_dir"), [(OURS, {}), pytest.param(STOCK["lstm_lm"], {"user_dir": None}, marks=pytest.mark.slow)]
)
def test_fairseq_reads_the_vectors_back(
    arch: tuple, user_dir: dict, stock: Callable[..., Path], run_command: RunCommand, lm_data: Path, tmp_path: Path
) -> None:
    checkpoint, path = stock("transformer_lm"), tmp_path / "x.vec"
    model = torch.load(checkpoint, weights_only=False)["model"]
    first, second = model["decoder.embed_tokens.weight"], model["decoder.output_projection.weight"]
    for role, expected in {"in": first, "sum": first + second, "out": second}.items():
        command("vectors", checkpoint, "--role", role, "--output", path)
        assert np.array_equal(read_vectors(path).rows_VD, expected[2:].numpy())
    flags = ("--decoder-embed-path", path, "--lr", 1e-30, "--save-dir", tmp_path)
    run_command("train", lm_data, *UPDATE, *arch, *flags, **user_dir)
    found = torch.load(tmp_path / "checkpoint_last.pt", weights_only=False)["model"]
    assert torch.equal(found["decoder.embed_tokens.weight"][2:], second[2:])


def test_every_source_has_the_same_vectors(stock: Callable[..., Path], lm_data: Path, tmp_path: Path) -> None:
    checkpoint, path = stock("transformer_lm"), tmp_path / "x.vec"
    weight = torch.load(checkpoint, weights_only=False)["model"]["decoder.embed_tokens.weight"]
    # Two rows more: a table may be padded to a round number.
    hugging = write_safetensors(tmp_path / "x", {"wte": torch.cat((weight, weight[:2])), "head": weight + 1})
    words = ["</s>", "<unk>", *(line.split()[0] for line in (lm_data / "dict.txt").read_text().splitlines())]
    (tmp_path / "vocab.json").write_text(json.dumps({word: row for row, word in enumerate(words, start=2)}))
    written = set()
    for table, *options in (
        (f"{checkpoint}:in",),
        (checkpoint, "--role", "in"),
        (hugging, "--tensor", "wte", "--dictionary", tmp_path / "vocab.json"),
        (f"{hugging}:wte", "--dict", tmp_path / "vocab.json"),
        (path,),  # as written before
    ):
        command("vectors", table, *options, "--output", tmp_path / "y.vec")
        (tmp_path / "y.vec").rename(path)
        written.add(path.read_bytes())
    assert len(written) == 1
    assert read_vectors(path).words == words


WORDS = "the of and to in".split()


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    """An untied model of nine rows, with dict.txt beside it."""
    torch.manual_seed(1)
    model = {"decoder.embed_tokens.weight": torch.randn(9, 4), "decoder.output.weight": torch.randn(9, 4)}
    return write_checkpoint(tmp_path / "x.pt", model, WORDS)


def test_a_fresh_process_without_fairseq(checkpoint: Path) -> None:
    program = """
import sys
from fairseq_tiedemb.cli import main
assert main(["neighbours", sys.argv[1], "--words", "The", "--count", "2"]) == 0
assert main(["correlation", sys.argv[1]]) == 0
assert main(["vectors", sys.argv[1] + ":in", "--output", sys.argv[1] + ".vec"]) == 0
assert main(["similarity", "nothing.pt", "--sets", "nothing.txt"]) == 2
assert "fairseq" not in sys.modules
"""
    printed = without_fairseq(program, str(checkpoint)).splitlines()
    assert printed[0] == f"[1] {checkpoint}:in: 7 words, 4 wide"
    rows = read_checkpoint(checkpoint, flag="X")["model"]["decoder.embed_tokens.weight"].numpy()
    words = ["</s>", "<unk>", *WORDS]
    cosines = {word: exact_cosine(rows[4], row) for word, row in zip(words, rows[2:], strict=True) if word != "the"}
    best = sorted(cosines, key=lambda word: -cosines[word])[:2]
    assert printed[5].split()[:3] == ["1", best[0], f"{cosines[best[0]]:.3f}"]
    assert printed[6].split()[:3] == ["2", best[1], f"{cosines[best[1]]:.3f}"]
    assert printed[7].startswith("[1] ")  # of the next command
    assert read_vectors(Path(f"{checkpoint}.vec")).words == words


def test_a_safetensors_file_that_begins_as_a_pickle(tmp_path: Path) -> None:
    weight = torch.arange(8.0).view(4, 2)
    path = write_safetensors(tmp_path / "x", {"wte": weight})
    length = int.from_bytes(path.read_bytes()[:8], "little")
    about = "x" * (0x180 - length - len(', "about": ""'))
    path = write_safetensors(tmp_path / "x", {"wte": weight}, wte={"about": about})
    assert path.read_bytes()[:1] == b"\x80"
    (tmp_path / "vocab.txt").write_text("a\nb\nc\nd\n")
    (found,) = parse_source(f"{path}:wte", dictionary=tmp_path / "vocab.txt").read()
    assert found.rows_VD.tolist() == weight.tolist()


def test_vectors_do_not_replace_the_dictionary_of_the_training(tmp_path: Path, cli: Cli) -> None:
    (tmp_path / "data").mkdir()
    dictionary = write_dictionary(tmp_path / "data/dict.txt", WORDS)
    weight = torch.ones(len(WORDS) + 4, 2)
    path = write_checkpoint(tmp_path / "x.pt", {"decoder.embed_tokens.weight": weight})
    state = torch.load(path, weights_only=False)
    state["cfg"]["task"]["data"] = str(tmp_path / "data")
    torch.save(state, path)
    before = dictionary.read_text()
    err = cli("vectors", path, "--output", dictionary, status=2).err
    assert "--output: needs a name that is not among the inputs" in err
    assert dictionary.read_text() == before


def test_norms_know_a_safetensors_file_by_its_content(tmp_path: Path, cli: Cli) -> None:
    path = write_safetensors(tmp_path / "x", {"embed_tokens.weight": torch.tensor([[3.0, 4.0], [0.0, 5.0]])})
    out = cli("norms", path).out
    assert "embed_tokens.weight" in out
    assert out.splitlines()[-2].split() == ["mean", "5"]


def test_what_so_few_pairs_cannot_tell_is_a_dash(tmp_path: Path, cli: Cli) -> None:
    table, equal = tmp_path / "table.txt", tmp_path / "equal.txt"
    table.write_text("a 1 0\nb 1 1\nc 0 1\nd 1 2\n")
    equal.write_text("a 1 0\nb 1 0\nc 1 0\nd 1 0\n")
    (tmp_path / "set.txt").write_text("a b 3\na c 1\nb d 2\n")
    out = cli("similarity", table, equal, "--sets", tmp_path / "set.txt").out
    assert out.splitlines()[-1].split() == ["set", "3", "3", "0.500", "(-)", "-"]
    assert cli("correlation", table, equal).out.splitlines()[-1].split() == ["[1]", "-"]


def test_only_pieces_with_the_mark_are_words(tmp_path: Path) -> None:
    path = write_safetensors(tmp_path / "model.safetensors", {"wte": torch.arange(8.0).view(4, 2)})
    (tmp_path / "vocab.json").write_text(json.dumps({"the": 0, "Ġthe": 1, "Ġ": 2, "ing": 3}))
    (found,) = parse_source(f"{path}:wte", dictionary=tmp_path / "vocab.json", word_mark="Ġ").read()
    assert found.words == ["the", ""]
    assert found.rows_VD.tolist() == [[2, 3], [4, 5]]
    with pytest.raises(ValueError, match=r"--word-mark: needs the prefix of words in .*safetensors; got '▁'"):
        parse_source(f"{path}:wte", dictionary=tmp_path / "vocab.json", word_mark="▁").read()


@pytest.mark.parametrize("inferred", [False, True], ids=["languages", "languages by files"])
def test_dictionaries_of_translation(inferred: bool, tmp_path: Path) -> None:
    model = {f"{side}.embed_tokens.weight": torch.randn(6, 4) for side in ("encoder", "decoder")}
    (tmp_path / "data").mkdir()
    task = {"data": f"{tmp_path}/none:{tmp_path}/data", "source_lang": "de", "target_lang": "en"}
    if inferred:
        task |= {"source_lang": None, "target_lang": None}
        (tmp_path / "data/train.de-en.de.idx").touch()
    torch.save({"cfg": {"model": {}, "task": task}, "model": model}, tmp_path / "x.pt")
    for language in ("de", "en"):
        write_dictionary(tmp_path / f"data/dict.{language}.txt", [f"{language}1", f"{language}2"])
    for role, side, language in (("source", "encoder", "de"), ("in", "decoder", "en")):
        (found,) = parse_source(f"{tmp_path}/x.pt:{role}").read()
        assert found.words == ["</s>", "<unk>", f"{language}1", f"{language}2"]
        assert np.array_equal(found.rows_VD, model[f"{side}.embed_tokens.weight"][2:])
    # A language model's dictionary has no language, whatever else its folder holds.
    path = write_checkpoint(tmp_path / "data/lm.pt", {"decoder.embed_tokens.weight": torch.randn(5, 4)}, ["word"])
    (found,) = parse_source(f"{path}:in").read()
    assert found.words == ["</s>", "<unk>", "word"]


def fingerprint(*words: str) -> dict[str, object]:
    rows = ["<s>", "<pad>", "</s>", "<unk>", *words]
    return {"size": len(rows), "sha256": hashlib.sha256("\n".join(rows).encode()).hexdigest()}


def test_each_side_has_the_words_of_its_training(tmp_path: Path) -> None:
    """Two dictionaries of one size, of which each is one side's, and the output table has some of the words only."""
    model = {f"{side}.embed_tokens.weight": torch.randn(6, 4) for side in ("encoder", "decoder")}
    model["decoder.output.weight"] = torch.randn(5, 4)
    kept = {"source": fingerprint("a", "b"), "target": fingerprint("c", "d")}
    torch.save({"cfg": {}, "model": model, "task_state": {"dictionaries_of_training": kept}}, tmp_path / "x.pt")
    of = {words: write_dictionary(tmp_path / words, list(words)) for words in ("ab", "cd", "c", "x")}
    for part, right, wrong in (
        ("source", "ab", "cd"),
        ("encoder.embed_tokens.weight", "ab", "cd"),
        ("in", "cd", "ab"),
        ("decoder.embed_tokens.weight", "cd", "ab"),
    ):
        (found,) = parse_source(f"{tmp_path}/x.pt:{part}", dictionary=of[right]).read()
        assert found.words[2:] == list(right)
        message = f"--dict: needs the 6 words that .*x.pt was trained with.*; got .*{wrong},"
        with pytest.raises(ValueError, match=message):
            parse_source(f"{tmp_path}/x.pt:{part}", dictionary=of[wrong]).read()
    for words in ("c", "x"):  # of which the checkpoint tells nothing
        (found,) = parse_source(f"{tmp_path}/x.pt:out", dictionary=of[words]).read()
        assert found.words[2:] == list(words)
    # Version 0.1.0 kept one dictionary.
    torch.save({"cfg": {}, "model": model, "task_state": {"dictionary": fingerprint("a", "b")}}, tmp_path / "x.pt")
    assert parse_source(f"{tmp_path}/x.pt:in", dictionary=of["ab"]).read()
    with pytest.raises(ValueError, match="--dict: needs the 6 words .*; got .*cd, with other words or another order"):
        parse_source(f"{tmp_path}/x.pt:in", dictionary=of["cd"]).read()


def test_a_word_that_a_dictionary_has_again_is_its_last_row(tmp_path: Path) -> None:
    path = write_checkpoint(tmp_path / "x.pt", {"decoder.embed_tokens.weight": torch.arange(14.0).view(7, 2)})
    (tmp_path / "dict.txt").write_text("a 5\n<unk> 4 #fairseq:overwrite\na 3 #fairseq:overwrite\n")
    (found,) = Source(path, "in").read()
    assert dict(zip(found.words, found.rows_VD[:, 0].tolist(), strict=True)) == {"</s>": 4, "<unk>": 10, "a": 12}


def test_a_path_may_have_a_colon(tmp_path: Path) -> None:
    path = tmp_path / "a:in"
    path.write_text("the 1 2\n")
    assert parse_source(str(path)) == Source(path)
    assert parse_source(f"{path}:out", role="in") == Source(path, "out")
    assert parse_source("b.pt:wte", role="in", tensor="x") == Source(Path("b.pt"), None, "wte")
    assert parse_source("b.pt", role="in") == Source(Path("b.pt"), "in")


def test_dictionaries_for_each_table(checkpoint: Path, tmp_path: Path, cli: Cli) -> None:
    (tmp_path / "dict.txt").rename(tmp_path / "a.txt")
    write_dictionary(tmp_path / "b.txt", [*WORDS[:4], "other"])
    one, two = (f"{checkpoint}:in", f"{checkpoint}:out")
    out = cli("correlation", one, two, "--dict", tmp_path / "a.txt", "--dict", tmp_path / "b.txt").out
    assert "6 words, 15 pairs" in out
    assert "7 words, 21 pairs" in cli("correlation", one, two, "--dict", tmp_path / "a.txt").out
    with pytest.raises(ValueError, match=r"--dict: needs one, or one for each TABLE; got 2 for 1. Use 1\."):
        command("correlation", checkpoint, "--dict", tmp_path / "a.txt", "--dict", tmp_path / "b.txt")
    with pytest.raises(ValueError, match=r"--dict: needs the words of .*x.pt; got no dict.txt in .*. Use --dict"):
        command("correlation", checkpoint)


def test_a_dictionary_may_be_a_pipe() -> None:
    reading, writing = os.pipe()
    with open(writing, "w") as file:
        file.write("a 3\nb 2\n")
    assert read_rows(Path(f"/dev/fd/{reading}")) == dict(enumerate([*FAIRSEQ_WORDS, "a", "b"]))
    os.close(reading)


def test_refusals(checkpoint: Path, tmp_path: Path) -> None:
    text, vocabulary, broken = tmp_path / "x.vec", tmp_path / "vocab.txt", tmp_path / "zip.pt"
    text.write_text("the 1 2\nof 3 4\n")
    vocabulary.write_text("a\nb\nc\nd\n")
    broken.write_bytes(b"PK\x03\x04 nothing")
    hugging = write_safetensors(tmp_path / "x.safetensors", {"wte": torch.ones(3, 2)})
    marks = tmp_path / "marks.txt"
    marks.write_text("<s>\n<pad>\n")
    empty = write_checkpoint(tmp_path / "empty.pt", {"decoder.embed_tokens.weight": torch.ones(9, 0)})
    diverged = write_checkpoint(tmp_path / "nan.pt", {"decoder.embed_tokens.weight": torch.full((9, 2), torch.nan)})
    short = write_checkpoint(tmp_path / "short.pt", {"decoder.embed_tokens.weight": torch.ones(6, 2)})
    for message, *arguments in (
        (r"TABLE: needs a file; got nothing.pt \(No such file", "nothing.pt"),
        (r"TABLE: needs a folder with model.safetensors; got", tmp_path),
        ("TABLE: needs finite numbers; got .*nan.pt:in with inf or nan for '</s>'", diverged),
        ("TABLE: .*zip.pt: needs a whole checkpoint", broken),
        ("--role: needs a checkpoint, .* got in for .*x.vec", text, "--role", "in"),
        (r"--tensor: needs the name of a matrix of .*x.safetensors; got None. Use .* wte \(3, 2\)", f"{hugging}:out"),
        ("--tensor: needs a table without a role; got x and --role in", checkpoint, "--role", "in", "--tensor", "x"),
        ("--tensor: needs a table without a role; got x", checkpoint.parent, "--role", "in", "--tensor", "x"),
        ("--tensor: needs a checkpoint or a safetensors file; got wte for .*x.vec", f"{text}:wte"),
        (r"--tensor: needs a role \(in, out, .*\) or the name of a matrix of .*x.pt; got inn", f"{checkpoint}:inn"),
        ("--dict: needs one word for each of the 6 rows of .*short.pt; got 9 in .*. Use the dictionary of", short),
        ("one word for each of the 3 rows of .*x.safetensors; got 4", f"{hugging}:wte", "--dict", vocabulary),
        ("--dict: needs words of .*x.safetensors that are no marks; got none. Use", f"{hugging}:wte", "--dict", marks),
        ("--role: needs a table that the model has; got in .*empty.pt, which has none", empty, "--role", "in"),
        ("--words: needs words that .*x.vec has; got 'off'. Use of", text, "--words", "off"),
        (r"--dict: needs a text file; got nothing.txt \(No such file", text, "--dict", "nothing.txt"),
    ):
        with pytest.raises(ValueError, match=message):
            command("neighbours", *arguments, *(() if "--words" in arguments else ("--words", "the")))
    with pytest.raises(ValueError, match=r"--role: needs one table; got .*in, .*out. Use in, out or sum"):
        command("vectors", checkpoint, "--output", tmp_path / "y.vec")
    with pytest.raises(ValueError, match=r"--output: needs a folder that exists; got .*none"):
        command("vectors", checkpoint, "--output", tmp_path / "none/y.vec")
    with pytest.raises(ValueError, match=r"--output: needs a folder that exists; got .*x.vec, a file. Use another"):
        command("vectors", checkpoint, "--output", text / "y.vec")
    assert not (tmp_path / "y.vec").exists()
