"""The recipe that holds the methods of Liu et al. against each other on Multi30k and Tatoeba, and Tatoeba's text."""

import gzip
import re
import shutil
import zipfile
from pathlib import Path

import pytest

from fairseq_tiedemb.sharing import SHARING_METHODS

from .corpora import real_pairs, sentence_pairs
from .shell import RECIPES, SHARED_DATA, command_of, dry_run, needs_sacremoses, option, refusal, run_python, run_recipe

RECIPE = "train-liu-small.sh"
DIMENSIONS = "train-liu-dimensions.sh"


def training(row: str, folder: Path, **variables: object) -> list[str]:
    return command_of(dry_run(RECIPE, "multi30k", row, RUNS=folder, **variables), "fairseq-train")


def test_rows_differ_in_the_method_alone(tmp_path: Path) -> None:
    plain = training("plain", tmp_path)
    for method in SHARING_METHODS:
        assert training(method, tmp_path) == [word.replace("plain", method) for word in plain]
    stock = " ".join(training("fairseq", tmp_path))
    stock = stock.replace("--arch transformer", "--arch tied_transformer --sharing-method plain")
    stock = stock.replace("label_smoothed_cross_entropy", "tied_cross_entropy").replace("r-fairseq-1", "r-plain-1")
    assert stock == " ".join(plain)


def test_corpora_differ_in_the_folder_alone(tmp_path: Path) -> None:
    variables = {"RUNS": tmp_path, "FROM": tmp_path}
    multi30k = dry_run(RECIPE, "multi30k", "cosine", **variables)
    for corpus, language in (("tatoeba-de", "de"), ("tatoeba-ro", "ro")):
        commands = dry_run(RECIPE, corpus, "cosine", **variables)
        assert option(command_of(commands, "fairseq-preprocess"), "--source-lang") == language
        expected = [word.replace("multi30k", corpus) for word in command_of(multi30k, "fairseq-train")]
        assert command_of(commands, "fairseq-train") == expected
        assert commands[-1][1] == f"{tmp_path}/{corpus}/text/test.en"


def test_widths_differ_in_sizes_and_rate_alone(tmp_path: Path) -> None:
    small = training("cosine", tmp_path)
    for width, rate in (("64", 2.83e-3), ("128", 2e-3), ("256", 1.41e-3), ("512", 1e-3)):
        train = command_of(dry_run(DIMENSIONS, "cosine", width, RUNS=tmp_path), "fairseq-train")
        assert option(train, "--encoder-embed-dim") == option(train, "--decoder-embed-dim") == width
        inner = option(train, "--encoder-ffn-embed-dim"), option(train, "--decoder-ffn-embed-dim")
        assert inner == (str(4 * int(width)),) * 2
        assert float(option(train, "--lr")) == rate == pytest.approx(2e-3 * (128 / int(width)) ** 0.5, rel=3e-3)
        assert option(train, "--save-dir") == f"{tmp_path}/multi30k/transformer-cosine-{width}-1"
        if width == "128":
            assert [word.replace("cosine-128-1", "cosine-1") for word in train] == small


def test_settings_from_variables(tmp_path: Path) -> None:
    train = training("distance", tmp_path, SEED=7, UPDATES=120)
    assert option(train, "--seed") == "7"
    assert option(train, "--max-update") == option(train, "--total-num-update") == "120"
    assert option(train, "--warmup-updates") == "12"
    assert option(train, "--save-dir") == f"{tmp_path}/multi30k/transformer-distance-7-UPDATES-120"


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ([RECIPE, "plain"], "needs CORPUS and METHOD; got 1 arguments. Use multi30k, .*; then plain, .*; or fairseq"),
        ([RECIPE, "tatoeba", "plain"], "CORPUS: needs multi30k, .* or tatoeba-ro; got tatoeba"),
        ([RECIPE, "multi30k", "cosinus"], "METHOD: needs plain, .* or cosine; got cosinus"),
        (["prepare-tatoeba.sh"], "needs one LANGUAGE; got 0 arguments"),
        (["prepare-tatoeba.sh", "it"], "LANGUAGE: needs de, es, fr or ro; got it"),
        ([DIMENSIONS, "plain"], "needs METHOD and D; got 1 arguments"),
        ([DIMENSIONS, "tied", "64"], "METHOD: needs plain, .* or cosine; got tied"),
        ([DIMENSIONS, "plain", "100"], "D: needs 64, 128, 256 or 512; got 100"),
        (["prepare-tatoeba.sh", "de"], "FROM: needs a file of sentence pairs; got none. Use FROM=.*deu-eng.zip"),
    ],
)
def test_refused(command: list[str], message: str, tmp_path: Path) -> None:
    assert re.search(message, refusal(*command, RUNS=tmp_path))


def write_tatoeba(path: Path, pairs: list[tuple[str, str]]) -> Path:
    """Writes (foreign, English) pairs as Tatoeba's are published: English first, a note behind."""
    text = "".join(f"{english}\t{foreign}\tCC-BY 2.0\n" for foreign, english in pairs)
    if path.suffix == ".zip":
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("_about.txt", "notes")
            archive.writestr("deu.txt", text)
    else:
        path.write_bytes(gzip.compress(text.encode()) if path.suffix == ".gz" else text.encode())
    return path


def tatoeba(path: Path, held_out: int) -> dict[str, list[str]]:
    """What tatoeba_text.py makes of a file, by file name."""
    out = path.parent / "out"
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir()
    process = run_python(RECIPES / "tatoeba_text.py", path, "de", out, "--held-out", held_out)
    assert process.returncode == 0, process.stderr
    return {file.name: file.read_text().splitlines() for file in out.iterdir()}


def test_no_sentence_is_in_two_sets(tmp_path: Path) -> None:
    pairs = sentence_pairs(60)
    # A second translation of each English sentence, and for each German one an English one in capitals.
    pairs += [(f"{german} Ja.", english) for german, english in pairs] + [
        (german.upper(), f"{english} Yes.") for german, english in pairs
    ]
    sets = tatoeba(write_tatoeba(tmp_path / "deu.tsv", pairs), held_out=15)
    assert [len(sets[f"{name}.en"]) for name in ("valid", "test")] == [15, 15]
    for language in ("de", "en"):
        train, valid, test = (
            {line.lower() for line in sets[f"{name}.{language}"]} for name in ("train", "valid", "test")
        )
        assert train.isdisjoint(valid | test)
        assert valid.isdisjoint(test)
    kept = {
        pair for name in ("train", "valid", "test") for pair in zip(sets[f"{name}.de"], sets[f"{name}.en"], strict=True)
    }
    assert kept < set(pairs)
    # What is left out shares a sentence with a held-out pair.
    held_out = {line.lower() for name in ("valid", "test") for side in ("de", "en") for line in sets[f"{name}.{side}"]}
    assert all({german.lower(), english.lower()} & held_out for german, english in set(pairs) - kept)


def test_the_same_split_of_any_format_and_order(tmp_path: Path) -> None:
    pairs = sentence_pairs(90)
    text = tatoeba(write_tatoeba(tmp_path / "deu.tsv", pairs), held_out=20)
    assert tatoeba(write_tatoeba(tmp_path / "deu.tsv.gz", [*pairs, pairs[0]]), held_out=20) == text
    reverse = tatoeba(write_tatoeba(tmp_path / "deu.zip", pairs[::-1]), held_out=20)
    assert {name: sorted(lines) for name, lines in reverse.items()} == {name: sorted(text[name]) for name in text}
    assert reverse["test.de"] == text["test.de"]


def test_held_out_sentences_are_of_all_lengths(tmp_path: Path) -> None:
    pairs = sorted(sentence_pairs(300), key=lambda pair: len(pair[1]))
    test = tatoeba(write_tatoeba(tmp_path / "deu.tsv", pairs), held_out=50)["test.en"]
    places = [index for index, (_, english) in enumerate(pairs) if english in test]
    assert min(places) < 50
    assert max(places) > 250


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("deu.tsv", b"Hi.\tHallo!\nHi.\n", r"deu.tsv: line 2: needs English TAB translation; got 'Hi.'"),
        ("deu.tsv", b"Hi.\t \n", r"line 1: needs English TAB translation; got 'Hi.\\t '"),
        ("deu.tsv", b"Hi.\tHallo!\n", "--held-out: needs 60 English sentences or more; got 1. Use fewer"),
        ("deu.tsv.gz", gzip.compress(b"Hi.\tHallo!\n" * 9, mtime=0)[:-9], "deu.tsv.gz: Compressed file ended"),
        ("missing.tsv", None, "No such file"),
    ],
)
def test_refused_text(name: str, content: bytes | None, message: str, tmp_path: Path) -> None:
    if content is not None:
        (tmp_path / name).write_bytes(content)
    (tmp_path / "out").mkdir()
    process = run_python(RECIPES / "tatoeba_text.py", tmp_path / name, "de", tmp_path / "out", "--held-out", 20)
    assert process.returncode == 1
    assert re.search(message, process.stderr)
    assert not list((tmp_path / "out").iterdir())


@pytest.mark.parametrize("held_out", [0, -1])
def test_refused_number_of_held_out_sentences(held_out: int, tmp_path: Path) -> None:
    path = write_tatoeba(tmp_path / "deu.tsv", sentence_pairs(60))
    (tmp_path / "out").mkdir()
    process = run_python(RECIPES / "tatoeba_text.py", path, "de", tmp_path / "out", "--held-out", held_out)
    assert process.returncode == 1
    assert f"--held-out: needs a positive whole number; got {held_out}. Use 1000, say." in process.stderr
    assert not list((tmp_path / "out").iterdir())


def test_a_byte_order_mark_is_no_letter(tmp_path: Path) -> None:
    path = write_tatoeba(tmp_path / "deu.tsv", sentence_pairs(60))
    text = tatoeba(path, held_out=15)
    path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes())
    assert tatoeba(path, held_out=15) == text


def test_refused_damaged_gzip(tmp_path: Path) -> None:
    content = bytearray(gzip.compress(b"Hi.\tHallo!\n" * 99, mtime=0))
    content[12] ^= 0xFF
    (tmp_path / "deu.tsv.gz").write_bytes(content)
    process = run_python(RECIPES / "tatoeba_text.py", tmp_path / "deu.tsv.gz", "de", tmp_path, "--held-out", 20)
    assert process.returncode == 1
    assert f"tatoeba_text.py: {tmp_path}/deu.tsv.gz: " in process.stderr
    assert "Traceback" not in process.stderr


def test_refused_archive(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "x.zip", "w") as archive:
        archive.writestr("deu.txt", "Hi.\tHallo!\n")
        archive.writestr("spa.txt", "Hi.\tHola.\n")
    process = run_python(RECIPES / "tatoeba_text.py", tmp_path / "x.zip", "de", tmp_path, "--held-out", 20)
    assert process.returncode == 1
    assert "needs one text of sentence pairs; got ['deu.txt', 'spa.txt']. Use the text itself." in process.stderr


@pytest.mark.slow
def test_whole_recipe_of_a_width(tmp_path: Path) -> None:
    source = SHARED_DATA / "multi30k"
    if not source.exists():
        pytest.skip(f"Multi30k is not at {source}")
    process = run_recipe(DIMENSIONS, "square-output", 64, SMOKE=1, GPUS=0, FROM=source, RUNS=tmp_path)
    assert process.returncode == 0, process.stderr
    assert process.stdout.splitlines()[-1].startswith("BLEU|")


@pytest.mark.slow
@needs_sacremoses
@pytest.mark.parametrize("row", ["l2-input", "fairseq"])
@pytest.mark.parametrize("corpus", ["multi30k", "tatoeba-ro"])
def test_whole_recipe(corpus: str, row: str, tmp_path: Path) -> None:
    if corpus == "multi30k":
        source = SHARED_DATA / "multi30k"
        if not source.exists():
            pytest.skip(f"Multi30k is not at {source}")
    else:
        source = write_tatoeba(tmp_path / "ron-eng.zip", real_pairs("ro", 400))
    process = run_recipe(RECIPE, corpus, row, SMOKE=1, FROM=source, RUNS=tmp_path / "runs")
    assert process.returncode == 0, process.stderr
    assert len([line for line in process.stdout.splitlines() if line.startswith("BLEU|")]) == 2
    folder = tmp_path / f"runs/{corpus}-smoke"
    translations = (folder / f"transformer-{row}-1/test.hyp").read_text().splitlines()
    assert len(translations) == (40 if corpus == "multi30k" else 20)
