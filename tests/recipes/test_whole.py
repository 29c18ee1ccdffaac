"""Whole recipes on a few lines, SMOKE=1, from the text to the recorded figures; minutes each."""

import json
import re
import socket
import subprocess
import tarfile
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from made_up import write_iwslt, write_multi30k, write_ptb, write_reviews, write_tatoeba, write_text8, write_wmt

from ..export.test_to_ctranslate2 import needs_engine
from .corpora import real_pairs
from .shell import SHARED_DATA, needs_sacremoses, run_recipe

pytestmark = pytest.mark.slow


class Smoke:
    """Recipes of one corpus, whose folders are those of this test."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.runs, self.results = folder, folder / "runs", folder / "results"

    def run(self, *words: object, **variables: object) -> subprocess.CompletedProcess[str]:
        given = {"RUNS": self.runs, "RESULTS": self.results, "SMOKE": 1, "GPUS": 0, **variables}
        return run_recipe(str(words[0]), *words[1:], **given)

    def result(self, name: str) -> dict[str, Any]:
        return json.loads((self.results / f"{name}.json").read_text())

    def figures(self, name: str) -> dict[str, float]:
        return {column: figure["value"] for column, figure in self.result(name)["figures"].items()}


@pytest.fixture
def smoke(tmp_path: Path) -> Smoke:
    return Smoke(tmp_path)


@pytest.fixture
def ptb(tmp_path: Path) -> dict[str, object]:
    return write_ptb(tmp_path / "source", train=500, held_out=50)


@pytest.fixture
def multi30k(tmp_path: Path) -> Path:
    """The real corpus, or as many lines as SMOKE=1 reads."""
    (tmp_path / "multi30k").mkdir()
    write_multi30k(tmp_path / "multi30k", lines=300)
    source = SHARED_DATA / "multi30k"
    return source if source.exists() else tmp_path / "multi30k"


def bleu(process: subprocess.CompletedProcess[str]) -> list[str]:
    return [line for line in process.stdout.splitlines() if line.startswith("BLEU|")]


def perplexities(process: subprocess.CompletedProcess[str]) -> list[str]:
    return re.findall(r"Evaluated [\d,]+ tokens.*\n.*Perplexity: ([\d.]+)", process.stdout)


@pytest.mark.parametrize(("script", "row"), [("train-table6-small.sh", "wt-pr"), ("train-table5-large.sh", "rhn-wt")])
def test_language_model(script: str, row: str, smoke: Smoke, ptb: dict[str, object]) -> None:
    process = smoke.run(script, row, **ptb)
    counts = [int(each.replace(",", "")) for each in re.findall(r"Evaluated ([\d,]+) tokens", process.stdout)]
    text = (smoke.runs / "ptb-smoke/text/test.txt").read_text()
    assert counts[-1] == len(text.replace("\n", " . ").split()), "every token once, with the ends of lines"
    # Run again, as after an interruption: the checkpoint is loaded, and nothing trained once more.
    again = smoke.run(script, row, **ptb)
    assert "Loaded checkpoint" in again.stdout
    assert "begin training epoch" not in again.stdout
    assert perplexities(again) == perplexities(process) != []


def test_two_machines(smoke: Smoke) -> None:
    """Each runs the recipe; they meet at an address, and the first one alone scores."""
    smoke.run("prepare-ptb.sh")
    with socket.socket() as free:
        free.bind(("localhost", 0))
        master = f"localhost:{free.getsockname()[1]}"
    with ThreadPoolExecutor() as pool:
        run = partial(smoke.run, "train-table6-small.sh", "wt", NODES=2, MASTER=master)
        first, second = pool.map(lambda node: run(NODE=node), range(2))
    assert "distributed_world_size': 2" in first.stdout
    assert perplexities(first)
    assert not perplexities(second)
    assert "NODES=2" in smoke.result("table6/wt-1")["command"]


@pytest.mark.parametrize(
    ("words", "results", "says"),
    [
        ("train-table6-small.sh kn5", ["table6/kn5"], r"ptb-smoke/text/test\.txt"),
        ("train-lecture-nnlm.sh relu-dropout", ["lecture-nnlm/relu-dropout-1"], "interpolated"),
        (
            "train-lecture-output-layers.sh tree-exchange",
            ["lecture-output-layers/tree-exchange-1"],
            "class bigram model",
        ),
        (
            "train-lecture-self-normalised.sh alpha-0.1",
            ["lecture-self-normalised/alpha-0.1-1"],
            r"log P -1\.83, \|log Z\| 0\.68; here[\s\S]*mean \|log Z\|",
        ),
        ("train-small-record.sh wt-pr", ["small-record/wt-pr-1"], "Perplexity: "),
        ("train-transformer-lm.sh adaptive-tied", ["transformer-lm/adaptive-tied-1"], "Perplexity: "),
    ],
)
def test_on_penn_treebank(words: str, results: list[str], says: str, smoke: Smoke) -> None:
    """On a text that is made up; figures of a corpus with COUNTS of its own are those of no row."""
    smoke.run("prepare-ptb.sh")
    process = smoke.run(*words.split())
    assert re.search(says, process.stdout)
    for name in results:
        assert smoke.figures(name)
        assert smoke.result(name)["command"].endswith(f"recipes/{words}")


@pytest.mark.parametrize("name", ["imdb", "text8"])
def test_table7(name: str, smoke: Smoke) -> None:
    source = SHARED_DATA / "archives/aclImdb.tar.xz" if name == "imdb" else smoke.folder / "text8"
    if name == "text8":
        write_text8(source, count=6000)
    elif not source.exists():
        pytest.skip(f"the reviews are not at {source}")
    assert len(perplexities(smoke.run(f"train-table7-{name}-small.sh", "wt-pr", FROM=source))) == 3


@needs_sacremoses
def test_iwslt_german(smoke: Smoke) -> None:
    pairs = real_pairs("de", 400)
    archive = write_iwslt(smoke.folder, "de", pairs[:300], talks=pairs[300:])
    process = smoke.run("train-liu-table3-transformer-iwslt14.sh", "de", "square-output", FROM=archive)
    assert f"{archive}: no SHA-256 of it is published; this one has " in process.stderr
    folder = smoke.runs / "iwslt14-de-smoke"
    lines = {split: len((folder / f"text/{split}.de").read_text().splitlines()) for split in ("train", "valid", "test")}
    # Some pairs have a ratio that is too large; every 23rd of the others is for validation; all five sets are the test.
    kept = lines["train"] + lines["valid"]
    assert 200 < kept <= 300
    assert (lines["valid"], lines["test"]) == (kept // 23, 100)
    assert len((folder / "transformer-square-output-1/test.hyp").read_text().splitlines()) == 100
    process = smoke.run("train-liu-table4-dynamicconv-iwslt14.sh", "cosine", FROM=archive)
    assert "fairseq-preprocess" not in process.stdout, "the corpus is there"
    assert smoke.figures("liu-table4/cosine-1")


@needs_sacremoses
@pytest.mark.parametrize("language", ["es", "ro"])
def test_iwslt_other(language: str, smoke: Smoke) -> None:
    pairs = real_pairs(language, 400)
    archive = write_iwslt(smoke.folder, language, pairs[:300], talks=pairs[300:])
    smoke.run("train-liu-table3-transformer-iwslt14.sh", language, "distance", FROM=archive)
    text = smoke.runs / f"iwslt14-{language}-smoke/text"
    lines = {split: (text / f"{split}.{language}").read_text().splitlines() for split in ("train", "valid", "test")}
    # One set for validation, three for the test.
    assert (len(lines["valid"]), len(lines["test"])) == (20, 60)
    assert 200 < len(lines["train"]) <= 300
    assert all(line == line.lower() for split in lines.values() for line in split)


@needs_sacremoses
@pytest.mark.parametrize("script", ["train-liu-table1-transformer-wmt16.sh", "train-liu-table2-dynamicconv-wmt16.sh"])
def test_wmt(script: str, smoke: Smoke) -> None:
    write_wmt(smoke.folder / "text", real_pairs("de", 340))
    usual, tokenised = bleu(smoke.run(script, "l2-input", FROM=smoke.folder / "text"))
    assert "tok:13a" in usual
    assert "tok:none" in tokenised
    [average] = smoke.runs.glob("wmt16-ende-smoke/*l2-input-1/average.pt")
    assert "▁" not in (average.parent / "test.hyp").read_text()


@needs_sacremoses
@pytest.mark.parametrize(
    ("words", "row", "lines"),
    [
        ("train-liu-small.sh multi30k l2-input", "liu-small-multi30k/l2-input-1", 40),
        ("train-liu-small.sh tatoeba-ro fairseq", "liu-small-tatoeba-ro/fairseq-1", 20),
        ("train-liu-dimensions.sh square-output 64", "liu-dimensions/square-output-64-1", 40),
        ("train-multi30k.sh twwt", "multi30k/twwt-1", 40),
        ("train-multi30k.sh fairseq_twwt", "multi30k/fairseq_twwt-1", 40),
        ("train-table8-tatoeba.sh de-en twwt", "table8-tatoeba/de-en,twwt-1", 20),
    ],
)
def test_small_translation(words: str, row: str, lines: int, smoke: Smoke, multi30k: Path) -> None:
    source = multi30k
    for language in ("de", "ro"):
        if language in re.split("[ -]", words):
            source = write_tatoeba(smoke.folder / "pairs.zip", real_pairs(language, 400))
    assert bleu(smoke.run(*words.split(), FROM=source))
    assert "test" in smoke.figures(row)
    [translations] = smoke.runs.glob("*/*-1/test.hyp")
    assert len(translations.read_text().splitlines()) == lines


@needs_sacremoses
@pytest.mark.parametrize(("pair", "row", "corpus"), [("en-de", "twwt", "wmt15-ende"), ("en-fr", "wt", "wmt14-enfr")])
def test_table8(pair: str, row: str, corpus: str, smoke: Smoke) -> None:
    target, source = pair[3:], smoke.folder / "text"
    if target == "de":
        write_wmt(source, real_pairs("de", 460))
    else:
        files = [SHARED_DATA / f"multi30k/train.{language}" for language in ("fr", "en")]
        if not files[0].exists():
            pytest.skip(f"Multi30k is not at {files[0].parent}")
        write_wmt(source, list(zip(*(path.read_text().splitlines()[:460] for path in files), strict=True)), "fr")
    process = smoke.run("train-table8-dl4mt.sh", pair, row, FROM=source)
    assert len(bleu(process)) == 2 + (pair == "en-de")
    assert smoke.figures(f"table8/{pair},{row}-1")
    # Table 1's counts are those of the dictionaries.
    smoke.run("measure-table1.sh", corpus, FROM=source)
    folder = smoke.runs / f"{corpus}-smoke"
    english, other = (
        {each.split()[0] for each in (folder / f"bin/dict.{language}.txt").read_text().splitlines()}
        - {f"madeupword{number:04}" for number in range(8)}
        for language in ("en", target)
    )
    counts = smoke.figures(f"table1/{corpus}")
    assert (counts["english"], counts["other"]) == (len(english - other), len(other - english))
    assert counts["both"] == len(english & other)


def test_tables_3_and_4(smoke: Smoke) -> None:
    smoke.run("prepare-ptb.sh")
    words = sorted(set((smoke.runs / "ptb-smoke/text/train.txt").read_text().split()))
    pairs = zip(words[:20], words[5:25], strict=True)
    (smoke.folder / "sets").mkdir()
    lines = "".join(f"{a} {b} {number}\n" for number, (a, b) in enumerate(pairs))
    (smoke.folder / "sets/EN-MEN-TR-3k.txt").write_text(lines)
    process = smoke.run("measure-tables3-4.sh", SETS=smoke.folder / "sets", SPLITS="test")
    [rhos] = re.findall(r"^EN-MEN-TR-3k +20 +20" + 3 * r" +(-?0\.\d+) \([^)]*\)", process.stdout, re.M)
    for row, rho in zip(("small-in", "small-out", "wt-tied"), rhos, strict=True):
        assert smoke.figures(f"table3/{row}-1") == {"EN-MEN-TR-3k": float(rho)}
        note = smoke.result(f"table3/{row}-1")["note"]
        assert re.fullmatch(r"EN-MEN-TR-3k: 20 of 20 pairs, -?0\.\d\d to -?0\.\d\d", note)
    [of_input] = re.findall(r"^\[1\] +(-?0\.\d+) +(-?0\.\d+)$", process.stdout, re.M)
    [of_output] = re.findall(r"^\[2\] +(-?0\.\d+)$", process.stdout, re.M)
    expected = dict(zip(("in-out", "in-tied", "out-tied"), map(float, (*of_input, of_output)), strict=True))
    assert smoke.figures("table4/small-1") == expected
    shares = re.findall(r"= (0\.\d+) on average", process.stdout)
    for row, number in (("small", 0), ("wt", 1)):
        recorded = smoke.figures(f"section3/{row}-1")
        assert recorded["share"] == float(shares[number])
        assert recorded["share-of-word"] == float(shares[2 + number])
        assert recorded["rows"] > 1
        assert 0 < recorded["repeats"] < 1


def test_table2(smoke: Smoke) -> None:
    write_reviews(smoke.folder / "aclImdb", count=40)
    archive = smoke.folder / "aclImdb.tar.xz"
    with tarfile.open(archive, "w:xz") as tar:
        tar.add(smoke.folder / "aclImdb", "aclImdb")
    words = "a film rated caf scenes plot of sorts it s".split()
    (smoke.folder / "sets").mkdir()
    pairs = zip(words, words[1:] + words[:1], range(10), strict=True)
    lines = "".join(f"{a} {b} {n}\n" for a, b, n in pairs) + "no such 1\n"
    (smoke.folder / "sets/EN-MEN-TR-3k.txt").write_text(lines)
    questions = smoke.folder / "questions"
    variables = {"SETS": smoke.folder / "sets", "QUESTIONS": questions, "FROM": archive}
    questions.write_text(f": of-all\n{' '.join(words[:4])}\n")
    process = smoke.run("train-table2.sh", "tied", **variables)
    assert "decoder.embed_tokens.weight" in process.stdout
    answered = {name for name in smoke.figures("table2/tied-1") if name.startswith("analogies")}
    assert answered == {"analogies-semantic", "analogies-total"}, "there are no other questions"
    questions.write_text(f"{questions.read_text()}: gram1\n{' '.join(words[4:8])}\n")
    process = smoke.run("train-table2.sh", "untied", **variables)
    [rhos] = re.findall(r"^EN-MEN-TR-3k +10 +11" + 3 * r" +(-?0\.\d+) \([^)]*\)", process.stdout, re.M)
    for role, rho in zip(("in", "out", "sum"), rhos, strict=True):
        result, measured = smoke.result(f"table2/untied-{role}-1"), smoke.figures(f"table2/untied-{role}-1")
        assert measured.pop("EN-MEN-TR-3k") == float(rho)
        assert sorted(measured) == ["analogies-semantic", "analogies-syntactic", "analogies-total"]
        assert result["note"].startswith("EN-MEN-TR-3k: 10 of 11 pairs, ")
        assert result["note"].endswith("; analogies, total: 2 of 2")
        assert result["usage"]["runs"] == 1
    assert [*smoke.figures("table4/word2vec-1")] == ["in-out", "in-tied", "out-tied"]
    smoke.run("train-table2.sh", "counts", **variables)
    assert "EN-MEN-TR-3k" in smoke.figures("table2/counts")


@needs_engine
@needs_sacremoses
def test_export(smoke: Smoke, multi30k: Path) -> None:
    smoke.run("measure-export.sh", "distance", FROM=multi30k)
    measured = {name: smoke.figures(f"export/distance,{name}-1") for name in ("fairseq", "float32", "int8")}
    for name, figures in measured.items():
        log = smoke.runs / f"multi30k-smoke/transformer-distance-1/speed-{name}.log"
        assert [figures["speed"]] == [float(each) for each in re.findall(r"([\d.]+) tokens/s\)", log.read_text())]
    assert measured["fairseq"]["same"] == measured["float32"]["same"] == 40
    assert measured["float32"]["test"] == measured["fairseq"]["test"]


@needs_engine
@needs_sacremoses
def test_a_table_less_is_a_smaller_file(smoke: Smoke, multi30k: Path) -> None:
    sizes = {}
    for row in ("untied", "wt", "twwt"):
        smoke.run("measure-served-size.sh", row, FROM=multi30k)
        figures = smoke.figures(f"served-sizes/{row}")
        sizes[row] = figures["float32"]
        assert figures["int8"] < sizes[row]
    words = len((smoke.runs / "multi30k-smoke/bin/dict.en.txt").read_text().splitlines()) + 4
    table = words * 32 * 4 / 1e6
    assert sizes["untied"] - sizes["wt"] == pytest.approx(table, rel=0.02)
    assert sizes["wt"] - sizes["twwt"] == pytest.approx(table, rel=0.02)
