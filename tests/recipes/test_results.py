"""What recipes record: table and row, where, with which command; nothing in a dry run, nor of a few lines unasked."""

import json
import os
import sys
from pathlib import Path

import pytest
from bookkeeping.data import read_tables

from .shell import RECIPES, run_recipe

# Programs that do at once what the real ones take hours for; what fairseq-generate translates is the reference.
PROGRAMS = {
    "python": f'exec {sys.executable} "$@"',
    "fairseq-train": 'echo trained; [ -z "$FAIL" ] || exit 3',
    "fairseq-eval-lm": 'echo "Evaluated 82,430 tokens in 1s"; echo "Loss (base 2): 1, Perplexity: 99.25"',
    "fairseq-generate": 'printf "H-0\\t0\\ta b c d e\\n"',
    "sacrebleu": 'echo "BLEU|nrefs:1 = 42.50 1/1/1/1 (BP = 1.000 ratio = 1.000 hyp_len = 5 ref_len = 5)"',
    "sacremoses": "cat",
    "fairseq-tiedemb": ": averaged",
}
TABLES = {table.name: table for table in read_tables(RECIPES / "tables", flag="--tables")}
METHODS = ["plain", "l2-input", "square-output", "distance", "cosine"]
# Each row: the recipe and its words, the table, the row.
RUNS = [
    *((["train-table5-large.sh", row], "table5", row) for row in ("large", "gal-wt", "rhn-wt")),
    *((["train-table6-small.sh", row], "table6", row) for row in ("small", "wt-pr", "small-early-decay")),
    (["train-table7-bbc-small.sh", "pr"], "table7-bbc", "pr"),
    (["train-table7-imdb-small.sh", "wt"], "table7-imdb", "wt"),
    (["train-table7-text8-small.sh", "wt-pr"], "table7-text8", "wt-pr"),
    (["train-liu-table1-transformer-wmt16.sh", "cosine"], "liu-table1", "cosine"),
    (["train-liu-table2-dynamicconv-wmt16.sh", "plain"], "liu-table2", "plain"),
    (["train-liu-table3-transformer-iwslt14.sh", "es", "l2-input"], "liu-table3", "es-l2-input"),
    (["train-liu-table4-dynamicconv-iwslt14.sh", "distance"], "liu-table4", "distance"),
    (["train-liu-small.sh", "tatoeba-ro", "fairseq"], "liu-small-tatoeba-ro", "fairseq"),
    (["train-multi30k.sh", "fairseq_wt"], "multi30k", "fairseq_wt"),
    (["train-liu-dimensions.sh", "distance", "256"], "liu-dimensions", "distance-256"),
    (["train-table8-tatoeba.sh", "de-en", "twwt"], "table8-tatoeba", "de-en,twwt"),
    (["train-table8-dl4mt.sh", "en-de", "wt"], "table8", "en-de,wt"),
]


@pytest.fixture
def variables(tmp_path: Path) -> dict[str, object]:
    """Variables for a recipe: those programs, every corpus prepared, and a folder for results."""
    programs = tmp_path / "programs"
    programs.mkdir()
    for name, script in PROGRAMS.items():
        (programs / name).write_text(f"#!/bin/sh\n{script}\n")
        (programs / name).chmod(0o755)
    corpora = "ptb bbc imdb-lm text8 multi30k tatoeba-de tatoeba-ro wmt15-ende wmt16-ende iwslt14-de iwslt14-es"
    for corpus in corpora.split():
        for end in ("", "-smoke"):
            (tmp_path / f"runs/{corpus}{end}/bin").mkdir(parents=True)
            text = tmp_path / f"runs/{corpus}{end}/text"
            text.mkdir()
            for name in ("val.en", "test.en", "valid.en", "test.de", "valid.de", "test1.de", "test_2016_flickr.en"):
                (text / name).write_text("a b c d e\n")
    path = f"{programs}:{os.environ['PATH']}"
    return {"PATH": path, "RUNS": tmp_path / "runs", "RESULTS": tmp_path / "results"}


def results(variables: dict[str, object]) -> list[str]:
    folder = Path(str(variables["RESULTS"]))
    return [str(path.relative_to(folder)) for path in folder.rglob("*.json")]


@pytest.mark.parametrize(("words", "table", "row"), RUNS, ids=lambda value: value if isinstance(value, str) else "")
def test_a_recipe_records_its_row(words: list[str], table: str, row: str, variables: dict[str, object]) -> None:
    process = run_recipe(*words, SEED=3, **variables)
    assert process.returncode == 0, process.stderr
    assert results(variables) == [f"{table}/{row}-3.json"]
    result = json.loads((Path(str(variables["RESULTS"])) / results(variables)[0]).read_text())
    value = {"perplexity": 99.25, "BLEU": 42.5}
    expected = [column for column in TABLES[table].columns if column.unit in value]
    if table == "table5":  # whose training set takes hours to score
        expected = [column for column in expected if column.name != "train"]
    found = {name: figure["value"] for name, figure in result["figures"].items()}
    assert found == {column.name: value[column.unit] for column in expected}
    assert result["command"] == f"SEED=3 recipes/{' '.join(words)}"
    assert result["usage"]["runs"] == 1
    assert set(result["environment"]["versions"]) >= {"fairseq", "torch", "python"}


def test_interrupted_and_run_again(variables: dict[str, object]) -> None:
    assert run_recipe("train-multi30k.sh", "wt", FAIL=1, **variables).returncode == 3
    assert results(variables) == []
    assert run_recipe("train-multi30k.sh", "wt", **variables).returncode == 0
    result = json.loads((Path(str(variables["RESULTS"])) / "multi30k/wt-1.json").read_text())
    assert result["usage"]["runs"] == 2


def test_other_settings_are_another_row(variables: dict[str, object]) -> None:
    process = run_recipe("train-multi30k.sh", "fairseq_wt", UPDATES=4600, **variables)
    assert process.returncode == 0, process.stderr
    assert results(variables) == ["multi30k/fairseq_wt,UPDATES=4600-1.json"]
    process = run_recipe("train-multi30k.sh", "wt", UPDATES=4600, LR="1e-2", **variables)
    assert process.returncode == 0, process.stderr
    assert "not recorded: the table multi30k has no row wt,UPDATES=4600,LR=1e-2" in process.stderr
    assert len(results(variables)) == 1
    folders = sorted(path.name for path in (Path(str(variables["RUNS"])) / "multi30k").glob("*wt*"))
    assert folders == ["fairseq_wt-1-UPDATES-4600", "wt-1-UPDATES-4600-LR-1e-2"]


@pytest.mark.parametrize(
    ("words", "setting", "row"),
    [
        (["train-multi30k.sh", "wt"], ("BEAM", 1), "no row wt,BEAM=1"),
        (["train-liu-small.sh", "tatoeba-ro", "plain"], ("LENPEN", 0.6), "no row plain,LENPEN=0.6"),
        (["train-table8-dl4mt.sh", "en-de", "wt"], ("MERGES", 30), "no row en-de,wt,MERGES=30"),
    ],
)
def test_no_setting_that_changes_a_figure_goes_unsaid(
    words: list[str], setting: tuple[str, object], row: str, variables: dict[str, object]
) -> None:
    process = run_recipe(*words, **dict([setting]), **variables)
    assert process.returncode == 0, process.stderr
    assert row in process.stderr
    assert results(variables) == []


def test_a_command_names_files_and_not_their_places(variables: dict[str, object], tmp_path: Path) -> None:
    process = run_recipe("train-multi30k.sh", "wt", FROM=tmp_path / "pairs.tar", **variables)
    assert process.returncode == 0, process.stderr
    result = json.loads((Path(str(variables["RESULTS"])) / "multi30k/wt-1.json").read_text())
    assert result["command"] == "FROM=pairs.tar recipes/train-multi30k.sh wt"


def test_nothing_is_recorded_by_dry_and_smoke_runs(variables: dict[str, object]) -> None:
    kept = {path: path.read_bytes() for path in (RECIPES / "results").rglob("*.json")}
    for words in (["train-multi30k.sh", "wt"], ["train-table6-small.sh", "wt"]):
        assert run_recipe(*words, DRY_RUN=1, **variables).returncode == 0
        assert run_recipe(*words, SMOKE=1, **{**variables, "RESULTS": ""}).returncode == 0
    assert results(variables) == []
    assert {path: path.read_bytes() for path in (RECIPES / "results").rglob("*.json")} == kept
    # Where a folder is given, for tests.
    assert run_recipe("train-multi30k.sh", "wt", SMOKE=1, **variables).returncode == 0
    assert results(variables) == ["multi30k/wt-1.json"]
    result = json.loads((Path(str(variables["RESULTS"])) / "multi30k/wt-1.json").read_text())
    assert result["command"] == "SMOKE=1 recipes/train-multi30k.sh wt"


def test_kneser_ney(variables: dict[str, object], tmp_path: Path) -> None:
    text = Path(str(variables["RUNS"])) / "ptb/text"
    for split in ("train", "valid", "test"):
        (text / f"{split}.txt").write_text("a b c\nb c <unk>\n" * 9)
    (tmp_path / "programs/fairseq-tiedemb").unlink()
    process = run_recipe("train-table6-small.sh", "kn5", **variables)
    assert process.returncode == 0, process.stderr
    assert results(variables) == ["table6/kn5.json"]
    result = json.loads((Path(str(variables["RESULTS"])) / "table6/kn5.json").read_text())
    figures = result["figures"]
    assert f"{figures['test']['value']:.2f}  {text}/test.txt" in process.stdout
    assert figures["test"]["tokens"] == 72
    assert "seed" not in result
