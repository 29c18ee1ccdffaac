"""What recipes record: table and row, where, with which command; nothing in a dry run, nor of a few lines unasked."""

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import ema
import pytest
import torch
from bookkeeping.data import Row, Table, read_tables

from fairseq_tiedemb.analysis.overlap import describe

from .facts import SCORES
from .shell import RECIPES, dry_run, option, prepared, run_recipe, write_programs

TRAINS = """echo trained; [ -z "$FAIL" ] || exit 3
while [[ $1 != --save-dir ]]; do shift; done
touch "$2/checkpoint_best.pt" "$2/checkpoint_last.pt\""""
# Programs that do at once what the real ones take hours for; what fairseq-generate translates is the reference.
PROGRAMS = {
    "python": f'exec {sys.executable} "$@"',
    "fairseq-train": TRAINS,
    "fairseq-eval-lm": 'echo "Evaluated 82,430 tokens in 1s"; echo "Loss (base 2): 1, Perplexity: 99.25"',
    "fairseq-generate": 'printf "H-0\\t0\\ta b c d e\\n"',
    "sacrebleu": 'echo "BLEU|nrefs:1 = 42.50 1/1/1/1 (BP = 1.000 ratio = 1.000 hyp_len = 5 ref_len = 5)"',
    "sacremoses": "cat",
    "fairseq-tiedemb": 'while (($#)); do [[ $1 != --output ]] || touch "$2"; shift; done',
}
# Those record what other programs print, too.
OTHERS = {"measure-export.sh", "measure-served-size.sh", "train-table2.sh", "train-small-record.sh"}
OTHERS |= {name for name in SCORES if name.startswith("train-lecture")}
# The last row that the tables have of each recipe.
LAST: dict[str, tuple[Table, Row]] = {
    script: (table, row)
    for table in read_tables(RECIPES / "tables", flag="--tables")
    for row in table.rows
    for script in SCORES
    if (row.command or "").startswith(f"recipes/{script} ") and script not in OTHERS
}


class Runs:
    """A folder for RUNS with every corpus, and those programs."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "runs"
        for ending in ("", "-smoke"):
            prepared(self.folder, ending)
        names = ("val.en", "test.en", "valid.en", "test.de", "valid.de", "test1.de", "test_2016_flickr.en")
        for corpus in [*self.folder.iterdir()]:
            (corpus / "text").mkdir()
            for name in names:
                (corpus / "text" / name).write_text("a b c d e\n")
        self.programs = folder / "programs"
        path = write_programs(self.programs, PROGRAMS)
        self.results = folder / "results"
        self.variables: dict[str, object] = {"PATH": path, "RUNS": self.folder, "RESULTS": self.results}

    def run(self, *words: str, **variables: object) -> subprocess.CompletedProcess[str]:
        return run_recipe(*words, **{**self.variables, **variables})

    def program(self, name: str, script: str) -> None:
        (self.programs / name).write_text(f"#!/bin/bash\n{script}\n")
        (self.programs / name).chmod(0o755)

    def recorded(self) -> dict[str, dict]:
        paths = sorted(self.results.rglob("*.json"))
        return {str(path.relative_to(self.results)): json.loads(path.read_text()) for path in paths}

    def figures(self, name: str) -> dict[str, float]:
        return {column: figure["value"] for column, figure in self.recorded()[name]["figures"].items()}


@pytest.fixture
def runs(tmp_path: Path) -> Runs:
    return Runs(tmp_path)


def test_the_gpu_that_trained_is_recorded(runs: Runs) -> None:
    runs.program("nvidia-smi", "echo H200")
    runs.run("train-table6-small.sh", "wt")
    runs.run("train-table6-small.sh", "wt", SEED=2, GPUS=0)
    found = [runs.recorded()[f"table6/wt-{seed}.json"]["environment"]["accelerators"] for seed in (1, 2)]
    assert found == [["H200"], []]


@pytest.mark.parametrize("script", LAST)
def test_a_recipe_records_its_row(script: str, runs: Runs) -> None:
    table, row = LAST[script]
    words = str(row.command).removeprefix("recipes/").split()
    runs.run(*words, SEED=3)
    [(name, result)] = runs.recorded().items()
    assert name == f"{table.name}/{row.name}-3.json"
    value = {"perplexity": 99.25, "BLEU": 42.5}
    expected = {column.name: value[column.unit] for column in table.columns if column.unit in value}
    if table.name == "table5":  # whose training set takes hours to score
        del expected["train"]
    assert runs.figures(name) == expected
    assert result["command"] == f"SEED=3 {row.command}"
    assert result["usage"]["runs"] == 1
    assert set(result["environment"]["versions"]) >= {"fairseq", "torch", "python"}


def test_interrupted_and_run_again(runs: Runs, tmp_path: Path) -> None:
    runs.run("train-multi30k.sh", "wt", FAIL=1, status=3)
    assert runs.recorded() == {}
    runs.run("train-multi30k.sh", "wt", FROM=tmp_path / "pairs.tar")
    result = runs.recorded()["multi30k/wt-1.json"]
    assert result["usage"]["runs"] == 2
    assert result["command"] == "FROM=pairs.tar recipes/train-multi30k.sh wt", "which file, and not where it is"


def test_a_part_of_the_splits_is_said_and_replaces_no_more(runs: Runs) -> None:
    runs.run("train-ranking.sh", "plain", SPLITS="valid")
    [(name, result)] = runs.recorded().items()
    assert result["command"] == "SPLITS=valid recipes/train-ranking.sh plain"
    assert runs.figures(name).keys() & {"valid", "test"} == {"valid"}
    runs.run("train-ranking.sh", "plain")
    assert runs.figures(name).keys() >= {"valid", "test"}
    for log in runs.folder.rglob("score-test.log"):  # as in another checkout
        log.unlink()
    assert f"{name} has test, too. Remove it first" in runs.run("train-ranking.sh", "plain", SPLITS="valid").stderr


def test_other_settings_are_another_row(runs: Runs) -> None:
    shutil.copytree(runs.folder / "multi30k", runs.folder / "multi30k-30")
    process = runs.run("train-multi30k.sh", "fairseq_wt", UPDATES=4600)
    assert [*runs.recorded()] == ["multi30k/fairseq_wt,UPDATES=4600-1.json"]
    process = runs.run("train-multi30k.sh", "wt", UPDATES=4600, LR="1e-2", BEAM=1, LENPEN=0.6, MERGES=30)
    row = "wt,MERGES=30,UPDATES=4600,LR=1e-2,BEAM=1,LENPEN=0.6"
    assert f"not recorded: the table multi30k has no row {row}\n" in process.stderr
    assert len(runs.recorded()) == 1
    folders = sorted(str(path.relative_to(runs.folder)) for path in runs.folder.glob("*/*wt*"))
    assert folders == ["multi30k-30/wt-1-UPDATES-4600-LR-1e-2", "multi30k/fairseq_wt-1-UPDATES-4600"]


def test_nothing_is_recorded_by_dry_and_smoke_runs(runs: Runs) -> None:
    kept = {path: path.read_bytes() for path in (RECIPES / "results").rglob("*.json")}
    runs.run("train-table6-small.sh", "wt", DRY_RUN=1)
    runs.run("train-table6-small.sh", "wt", SMOKE=1, RESULTS="")
    assert runs.recorded() == {}
    assert {path: path.read_bytes() for path in (RECIPES / "results").rglob("*.json")} == kept
    # Where a folder is given, for tests.
    runs.run("train-table6-small.sh", "wt", SMOKE=1)
    assert [each["command"] for each in runs.recorded().values()] == ["SMOKE=1 recipes/train-table6-small.sh wt"]


def test_kneser_ney(runs: Runs) -> None:
    text = runs.folder / "ptb/text"
    for split in ("train", "valid", "test"):
        (text / f"{split}.txt").write_text("a b c\nb c <unk>\n" * 9)
    (runs.programs / "fairseq-tiedemb").unlink()
    process = runs.run("train-table6-small.sh", "kn5")
    result = runs.recorded()["table6/kn5.json"]
    assert f"{result['figures']['test']['value']:.2f}  {text}/test.txt" in process.stdout
    assert result["figures"]["test"]["tokens"] == 72
    assert "seed" not in result


def test_overlap(runs: Runs) -> None:
    printed = "\n".join(describe({"a", "b", "c", "d", "f"}, {"c", "d", "e"}, ("es", "en")))
    runs.program("fairseq-tiedemb", f"cat <<'END'\n{printed}\nEND")
    runs.run("measure-table1.sh", "tatoeba-es")
    assert runs.figures("table1/tatoeba-es.json") == {"english": 1, "other": 3, "both": 2, "shared": 33.3}


SCORE = 'case "$*" in *_ema.pt*) p={} ;; *) p={} ;; esac; echo "Evaluated 82,430 tokens in 1s"; '
SCORE += 'echo "Loss (base 2): 1, Perplexity: $p"'


@pytest.mark.parametrize(("ema", "best", "chosen"), [(90.5, 100.25, "ema"), (100.25, 90.5, "best")])
def test_the_validation_set_chooses(ema: float, best: float, chosen: str, runs: Runs) -> None:
    runs.program("fairseq-eval-lm", SCORE.format(ema, best))
    runs.program("python", f'case "$1" in */ema.py) ;; *) exec {sys.executable} "$@" ;; esac')
    runs.run("train-small-record.sh", "wt")
    assert f"checkpoint_{chosen}.pt" in runs.recorded()["small-record/wt-1.json"]["note"]
    assert [*runs.figures("small-record/wt-1.json").values()][-2:] == [90.5, 90.5]


def test_the_moving_average_becomes_the_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def run(*names: str) -> None:
        monkeypatch.setattr(sys, "argv", ["ema.py", *(str(tmp_path / name) for name in names)])
        ema.main()

    checkpoint = {
        "model": {"w": torch.zeros(2)},
        "extra_state": {"ema": {"w": torch.ones(2)}, "epoch": 3},
        "last_optimizer_state": {"step": 1},
        "cfg": {"a": 1},
    }
    torch.save(checkpoint, tmp_path / "last.pt")
    run("last.pt", "ema.pt")
    state = torch.load(tmp_path / "ema.pt", weights_only=True)
    assert state["model"]["w"].tolist() == [1, 1]
    assert (state["extra_state"], state["last_optimizer_state"], state["cfg"]) == ({"epoch": 3}, None, {"a": 1})
    # Which has no moving average now.
    with pytest.raises(SystemExit, match=rf"ema.py: {tmp_path}/ema\.pt: needs a moving average; got a checkpoint wi"):
        run("ema.pt", "again.pt")
    (tmp_path / "text.pt").write_text("no checkpoint")
    for name in ("text.pt", "none.pt"):
        with pytest.raises(SystemExit, match=f"ema.py: {tmp_path}/{name}: ."):
            run(name, "again.pt")
    assert not (tmp_path / "again.pt").exists()


def of_package(commands: list[list[str]]) -> list[list[str]]:
    """The commands of this package, from their names on; where it is not installed, the checkout's are run."""
    names = {"similarity", "correlation", "updates", "analogy", "counts", "export", "score", "classes"}
    places = [(words, next((i for i, each in enumerate(words) if each in names), 0)) for words in commands]
    return [words[place : (words + [">"]).index(">")] for words, place in places if place]


@pytest.fixture
def sets(tmp_path: Path) -> Path:
    (tmp_path / "sets").mkdir()
    for name in ("a", "EN-MEN-TR-3k"):
        (tmp_path / f"sets/{name}.txt").write_text("N <unk> 1\n<unk> N 2\n")
    return tmp_path / "sets"


def test_what_is_measured_of_language_models(sets: Path, tmp_path: Path) -> None:
    ptb = prepared(tmp_path / "runs") / "ptb"
    for row, said in (("small", "done training"), ("wt", "begin training epoch 2")):
        (ptb / f"{row}-7").mkdir()
        (ptb / f"{row}-7/checkpoint_last.pt").touch()
        (ptb / f"{row}-7/train.log").write_text(said)
    commands = dry_run("measure-tables3-4.sh", RUNS=tmp_path / "runs", SETS=sets, SEED=7)
    [train] = [words for words in commands if words[0] == "fairseq-train"]
    assert option(train, "--save-dir") == f"{ptb}/wt-7", "what is not trained to the end is trained first"
    models = [f"{ptb}/{row}-7/checkpoint_last.pt" for row in ("small", "wt")]
    similarity, correlation, *updates = of_package(commands[commands.index(train) :])
    assert similarity[1:5] == [*models, "--dict", f"{ptb}/bin/dict.txt"]
    assert similarity[5:] == ["--sets", f"{sets}/EN-MEN-TR-3k.txt", f"{sets}/a.txt"]
    assert correlation[1:] == [*models, "--dict", f"{ptb}/bin/dict.txt"]
    assert [words[1:5] for words in updates] == [[f"{ptb}/bin", "--checkpoint", *models]] * 2
    assert option(updates[1], "--batch-size") == option(updates[1], "--tokens-per-sample") == "1"


@pytest.mark.parametrize(
    ("row", "roles"), [("untied", ["in", "out", "sum"]), ("tied-cosine", ["tied"]), ("tree", ["in"]), ("counts", [])]
)
def test_what_is_measured_of_word_vectors(row: str, roles: list[str], sets: Path, tmp_path: Path) -> None:
    imdb = prepared(tmp_path / "runs") / "imdb"
    (tmp_path / "questions").touch()
    variables = {"RUNS": tmp_path / "runs", "SETS": sets, "QUESTIONS": tmp_path / "questions"}
    *made, similarity, analogy = of_package(dry_run("train-table2.sh", row, **variables))
    tables = [f"{imdb}/{row}-1/checkpoint_last.pt:{role}" for role in roles] or [f"{imdb}/counts/vectors.txt"]
    if row == "counts":
        assert made == [["counts", f"{imdb}/bin", "--window", "5", "--dim", "100", "--output", *tables]]
    given = [*tables, "--dict", f"{imdb}/bin/dict.txt"]
    assert similarity[1:] == [*given, "--sets", f"{sets}/EN-MEN-TR-3k.txt", f"{sets}/a.txt"]
    assert analogy[1:] == [*given, "--questions", f"{tmp_path}/questions"]


def test_what_is_measured_of_other_models(tmp_path: Path) -> None:
    runs = prepared(tmp_path / "runs")
    folder = runs / "multi30k/transformer-cosine-7"
    folder.mkdir()
    (folder / "test.bleu").touch()
    settings = {"RUNS": runs, "SEED": 7, "ROUNDS": 2, "BEAM": 3, "LENPEN": 0.6}
    commands = dry_run("measure-export.sh", "cosine", **settings)
    searches = [words for words in commands if "--beam" in words]
    assert [words[0] for words in searches] == ["fairseq-generate", "python", "python"] * 2
    assert {(option(words, "--beam"), option(words, "--lenpen")) for words in searches} == {("3", "0.6")}
    exports = of_package(commands)
    assert [option(words, "--quantization") for words in exports] == ["float32", "int8"]
    assert {words[1] for words in exports} == {f"{folder}/checkpoint_best.pt"}
    scored = [option(words, "--input") for words in commands[-3:]]
    assert scored == [f"{folder}/{name}.hyp" for name in ("fairseq", "float32", "int8")]
    # The feed-forward model is mixed by weights that are the best on the validation set.
    commands = dry_run("train-lecture-nnlm.sh", "plain", RUNS=runs)
    [mix] = [words for words in commands if "--interpolate" in words]
    folder = runs / "ptb/plain-1"
    place = mix.index("--interpolate")
    assert mix[place + 1 : place + 3] == [f"{folder}/valid.words", f"{folder}/test.words"]
    assert option(mix, "--held-out") == f"{runs}/ptb/text/valid.txt"
    assert [option(words, "--per-word") for words in commands if "--stream" in words] == mix[place + 1 : place + 3]
    # Scores of a self-normalised model are not normalised.
    [score] = of_package(dry_run("train-lecture-self-normalised.sh", "nce", RUNS=runs))
    assert score[-5:] == ["--data", f"{runs}/ptb/bin", "--raw", "--raw-sample", "10000"]
    # Classes are made once.
    [classes] = of_package(dry_run("train-lecture-output-layers.sh", "tree-exchange", RUNS=runs))[:1]
    assert classes == ["classes", f"{runs}/ptb/bin", "--classes", "100", "--output", f"{runs}/ptb/classes.txt"]
    (runs / "ptb/classes.txt").touch()
    commands = dry_run("train-lecture-output-layers.sh", "tree-exchange", RUNS=runs)
    assert not [words for words in commands if "classes" in words and words[0] != "fairseq-train"]


SIMILARITY = """\
set             pairs     of                    [1]                    [2]                     [3]
EN-MEN-TR-3k    1,048  3,000                      -   0.119 (0.04 to 0.20)    0.130 (0.05 to 0.21)
EN-SIMLEX-999     575    999  -0.025 (-0.06 to 0.11)  0.158 (-0.08 to 0.24)                      -
OWN                 9      9   0.500 (0.10 to 0.80)   0.500 (0.10 to 0.80)    0.500 (0.10 to 0.80)
"""


def test_figures_and_intervals_of_each_table(tmp_path: Path) -> None:
    log = tmp_path / "similarity.log"
    log.write_text(SIMILARITY)
    script = f'source "{RECIPES}/common.sh"; source "{RECIPES}/vectors.sh"; '
    script += f'for table in 1 2 3; do set_figures "{log}" $table; set_note "{log}" $table; echo; done'
    process = subprocess.run(["bash", "-c", script, "recipe"], capture_output=True, text=True, check=True)
    assert process.stdout.splitlines() == [
        "EN-SIMLEX-999=-0.025",
        "EN-SIMLEX-999: 575 of 999 pairs, -0.06 to 0.11",
        "EN-MEN-TR-3k=0.119",
        "EN-SIMLEX-999=0.158",
        "EN-MEN-TR-3k: 1,048 of 3,000 pairs, 0.04 to 0.20; EN-SIMLEX-999: 575 of 999 pairs, -0.08 to 0.24",
        "EN-MEN-TR-3k=0.130",
        "EN-MEN-TR-3k: 1,048 of 3,000 pairs, 0.05 to 0.21",
    ]


def test_the_missing_engine_is_named_before_anything_is_done(runs: Runs) -> None:
    runs.program("python", "exit 1")
    process = runs.run("measure-export.sh", "plain", RUNS=runs.folder / "none", status=1)
    assert re.search("needs the package ctranslate2; got a Python without it. Use pip install", process.stderr)
    assert not (runs.folder / "none").exists()
