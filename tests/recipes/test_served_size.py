"""The recipe for sizes of served models: what it trains and exports, what it refuses, and a run on a few lines."""

import json
from pathlib import Path

import pytest

from ..export.test_to_ctranslate2 import needs_engine
from .shell import SHARED_DATA, command_of, dry_run, needs_sacremoses, option, refusal, run_recipe

SCRIPT = "measure-served-size.sh"
FLAGS = {"untied": None, "wt": "--share-decoder-input-output-embed", "twwt": "--share-all-embeddings"}


@pytest.mark.parametrize("row", FLAGS)
def test_rows_differ_in_sharing_alone(row: str, tmp_path: Path) -> None:
    commands = dry_run(SCRIPT, row, RUNS=tmp_path, FROM=tmp_path)
    train = command_of(commands, "fairseq-train")
    assert {word for word in train if word.startswith("--share")} == ({FLAGS[row]} if FLAGS[row] else set())
    assert option(train, "--max-update") == "1"
    exports = [words for words in commands if "export" in words]
    assert [option(words, "--quantization") for words in exports] == ["float32", "int8"]


def test_refusals(tmp_path: Path) -> None:
    assert "needs one ROW; got 0 arguments. Use untied, wt or twwt." in refusal(SCRIPT, RUNS=tmp_path)
    assert "ROW: needs untied, wt or twwt; got tied." in refusal(SCRIPT, "tied", RUNS=tmp_path)


@pytest.mark.slow
@needs_engine
@needs_sacremoses
def test_a_table_less_is_a_smaller_file(tmp_path: Path) -> None:
    source = SHARED_DATA / "multi30k"
    if not source.exists():
        pytest.skip(f"Multi30k is not at {source}")
    sizes = {}
    for row in FLAGS:
        variables = {"RUNS": tmp_path / "runs", "RESULTS": tmp_path / "results", "FROM": source}
        process = run_recipe(SCRIPT, row, SMOKE=1, **variables)
        assert process.returncode == 0, process.stderr
        figures = json.loads((tmp_path / f"results/served-sizes/{row}.json").read_text())["figures"]
        sizes[row] = figures["float32"]["value"]
        assert figures["int8"]["value"] < sizes[row]
    words = len((tmp_path / "runs/multi30k-smoke/bin/dict.en.txt").read_text().splitlines()) + 4
    table = words * 32 * 4 / 1e6
    assert sizes["untied"] - sizes["wt"] == pytest.approx(table, rel=0.02)
    assert sizes["wt"] - sizes["twwt"] == pytest.approx(table, rel=0.02)
