"""What all recipes share: settings from variables, GPUs, corpora, what is shown, refused and missing, and scoring."""

import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from fairseq import options
from fairseq.dataclass.utils import convert_namespace_to_omegaconf
from made_up import write_multi30k
from omegaconf import OmegaConf

import fairseq_tiedemb.plugin  # noqa: F401 (registers the presets)
from fairseq_tiedemb.ngram import SMOOTHINGS

from .shell import RECIPES, REPOSITORY, command_of, dry_run, option, prepared, refusal, run_recipe, write_programs

DIMENSIONS, WMT16 = "train-liu-dimensions.sh", "train-liu-table1-transformer-wmt16.sh plain"


@pytest.mark.parametrize(
    ("words", "variables", "changed"),
    [
        (
            ["train-multi30k.sh", "wt"],
            {"SEED": 7, "UPDATES": 123, "MAX_TOKENS": 456, "LR": "1e-2", "DROPOUT": 0.5, "EMBED": 8, "HIDDEN": 9},
            "--seed 7 --max-update 123 --total-num-update 123 --warmup-updates 6 --max-tokens 456 --lr 1e-2 "
            "--dropout 0.5 --decoder-out-embed-dim 8 --decoder-hidden-size 9 --save-dir "
            "{runs}/multi30k/wt-7-UPDATES-123-MAX_TOKENS-456-LR-1e-2-DROPOUT-0.5-EMBED-8-HIDDEN-9",
        ),
        (
            ["train-liu-small.sh", "multi30k", "distance"],
            {"SEED": 7, "UPDATES": 120, "PLUGIN": "/a/plugin"},
            "--seed 7 --max-update 120 --warmup-updates 12 --user-dir /a/plugin "
            "--save-dir {runs}/multi30k/transformer-distance-7-UPDATES-120",
        ),
        (
            ["train-small-record.sh", "wt"],
            {"SPLITS": "valid", "INPUTS": "0.3", "ANNEAL": 20, "WEIGHT_DECAY": "1e-5"},
            "--dropout-inputs 0.3 --weight-decay 1e-5 --force-anneal 20 "
            "--save-dir {runs}/ptb/record-wt-1-INPUTS-0.3-ANNEAL-20-WEIGHT_DECAY-1e-5",
        ),
        (["train-table7-imdb-small.sh", "pr"], {"REVIEWS": 6250}, "--save-dir {runs}/imdb-lm-6250/pr-1"),
        (
            ["train-lecture-output-layers.sh", "tree"],
            {"ARCH": "zaremba_lm_small", "GPUS": 4},
            "--arch zaremba_lm_small --batch-size 5 --save-dir {runs}/ptb/zaremba_lm_small-tree-1",
        ),
        (
            ["train-table2.sh", "full-tied"],
            {"CORPUS": "ptb"},
            "--max-epoch 20 --max-update 9360 --save-dir {runs}/ptb/word2vec-full-tied-1",
        ),
        ([DIMENSIONS, "cosine", "64"], {}, "--lr 2.83e-3 --encoder-embed-dim 64 --decoder-ffn-embed-dim 256"),
        ([DIMENSIONS, "cosine", "512"], {}, "--lr 1e-3 --encoder-embed-dim 512 --decoder-ffn-embed-dim 2048"),
    ],
)
def test_settings(words: list[str], variables: dict[str, object], changed: str, tmp_path: Path) -> None:
    (prepared(tmp_path) / "imdb-lm-6250/bin").mkdir(parents=True)
    commands = dry_run(*words, RUNS=tmp_path, **variables)
    train = command_of(commands, "fairseq-train")
    flags = changed.format(runs=tmp_path).split()
    assert [option(train, name) for name in flags[::2]] == flags[1::2]
    if variables.get("SPLITS"):
        assert {option(each, "--gen-subset") for each in commands if each[0] == "fairseq-eval-lm"} == {"valid"}


@pytest.mark.parametrize(
    ("words", "devices", "given"),
    [
        ("train-table5-large.sh large", {"GPUS": 0}, "--distributed-world-size 1 --cpu"),
        ("train-table5-large.sh large", {"GPUS": 1}, "--distributed-world-size 1 --fp16"),
        ("train-table5-large.sh large", {"GPUS": 8}, "--distributed-world-size 8 --fp16 --batch-size 3"),
        (WMT16, {"GPUS": 0}, "--distributed-world-size 1 --cpu --update-freq 128"),
        (WMT16, {"GPUS": 6}, "--distributed-world-size 6 --fp16 --update-freq 22"),
        ("train-table8-dl4mt.sh en-de wt", {"GPUS": 6}, "--batch-size 14 --seed 1 --distributed-world-size 6 --fp16"),
        ("train-table8-dl4mt.sh en-de wt", {"GPUS": 1, "PRECISION": "bf16"}, "--distributed-world-size 1 --bf16"),
        ("train-table6-small.sh wt-pr", {"PRECISION": "bf16"}, "--distributed-world-size 1 --bf16"),
        ("train-multi30k.sh twwt", {"PRECISION": "bf16"}, "--distributed-world-size 1 --bf16"),
        ("train-multi30k.sh twwt", {"GPUS": 0, "PRECISION": "fp16"}, "--distributed-world-size 1 --cpu --fp16"),
        ("train-multi30k.sh twwt", {"GPUS": 2}, "--max-tokens 500 --distributed-world-size 2 --fp16"),
        ("train-table2.sh tied", {"GPUS": 2}, "--max-tokens 1000 --distributed-world-size 2 --fp16"),
        # Two machines, of which the second has no part in what comes after the training.
        (
            "train-table5-large.sh large",
            {"NODES": 2, "NODE": 1, "MASTER": "host:29500"},
            "--nnodes 2 --node-rank 1 --nproc-per-node 1 --master-addr host --master-port 29500 -m fairseq_cli.train "
            "--batch-size 10 --distributed-world-size 2",
        ),
    ],
)
def test_devices(words: str, devices: dict[str, object], given: str, tmp_path: Path) -> None:
    commands = dry_run(*words.split(), RUNS=prepared(tmp_path), **devices)
    trains = " ".join(next(words for words in commands if words[0] in ("fairseq-train", "torchrun")))
    assert [each for each in re.split(" (?=-)", given) if f"{each} " not in trains] == []
    for score in (words for words in commands if words[0] == "fairseq-eval-lm"):
        assert score[score.index("200") + 1 : score.index(">")] == ["--distributed-world-size", "1"] + ["--cpu"] * (
            devices.get("GPUS") == 0
        )


def test_a_setting_that_changes_scores_makes_another_row(tmp_path: Path) -> None:
    """Which the table lacks, so that nothing is recorded as the paper's."""
    trains = 'while [[ $1 != --save-dir ]]; do shift; done; touch "$2/checkpoint_best.pt"'
    programs = {"fairseq-train": trains, "fairseq-generate": "printf 'H-0\t-1\tx\n'", "sacrebleu": "true"}
    path = write_programs(tmp_path / "programs", programs)
    for split in ("val", "test_2016_flickr"):
        (tmp_path / "runs/multi30k/text").mkdir(parents=True, exist_ok=True)
        (tmp_path / f"runs/multi30k/text/{split}.en").write_text("x\n")
    given = {"RUNS": prepared(tmp_path / "runs"), "RESULTS": tmp_path, "PATH": path}
    process = run_recipe("train-multi30k.sh", "wt", OVERRIDES="{'a': 1}", **given)
    assert "not recorded: the table multi30k has no row wt,OVERRIDES={'a': 1}" in process.stderr
    process = run_recipe("train-multi30k.sh", "wt", MERGES=99, WORK=tmp_path / "runs/multi30k", **given)
    assert "not recorded: the table multi30k has no row wt,MERGES=99" in process.stderr


def test_all_gpus_train_unless_told_otherwise(tmp_path: Path) -> None:
    path = write_programs(tmp_path / "programs", {"nvidia-smi": "echo GPU 0; echo GPU 1"})
    train = command_of(dry_run("train-multi30k.sh", "twwt", RUNS=prepared(tmp_path), PATH=path), "fairseq-train")
    assert (option(train, "--distributed-world-size"), "--fp16" in train) == ("2", True)


CRAWL = "training-parallel-commoncrawl.tgz"
PREPARED = [
    # recipe, variables, addresses that end so, times that fairseq-preprocess runs and makes one dictionary
    (["prepare-ptb.sh"], {}, ["ptb.train.txt", "ptb.valid.txt", "ptb.test.txt"], (1, 0)),
    (["prepare-bbc.sh"], {}, ["bbc-fulltext.zip"], (1, 0)),
    (["prepare-imdb.sh"], {}, ["aclImdb_v1.tar.gz"], (1, 0)),
    (["prepare-imdb-lm.sh"], {}, ["aclImdb_v1.tar.gz"], (1, 0)),
    (["prepare-text8.sh"], {}, ["text8.zip"], (1, 0)),
    (["prepare-multi30k.sh"], {"FROM": "https://a.b/c"}, ["train.lc.norm.tok.de"], (1, 1)),
    (["prepare-iwslt14.sh", "de"], {}, ["de-en.tgz"], (1, 1)),
    (["prepare-iwslt14.sh", "es"], {"FROM": "/a/es-en.tgz"}, [], (1, 0)),
    (["prepare-tatoeba.sh", "fr"], {"FROM": "/a/fra-eng.zip"}, [], (1, 1)),
    (["prepare-wmt14-enfr.sh"], {}, ["bitexts.tgz", "dev+test.tgz"], (2, 1)),
    (["prepare-wmt15-ende.sh"], {}, ["de-en.tgz", CRAWL, "training-parallel-nc-v10.tgz"], (2, 1)),
    (["prepare-wmt15-ende.sh"], {"FROM": "/a/folder"}, [], (2, 1)),
    (["prepare-wmt16-ende.sh"], {}, ["de-en.tgz", CRAWL, "training-parallel-nc-v11.tgz"], (1, 1)),
]


@pytest.mark.parametrize(("words", "variables", "addresses", "made"), PREPARED)
def test_corpora(
    words: list[str], variables: dict[str, str], addresses: list[str], made: tuple[int, int], tmp_path: Path
) -> None:
    """What is downloaded, and that the binary files appear last, when they are whole."""
    commands = dry_run(*words, RUNS=tmp_path, **variables)
    downloads = [words[-1] for words in commands if words[0] == "curl"]
    assert [each.rpartition("/")[2] for each in downloads][: len(addresses)] == addresses
    assert bool(downloads) == bool(addresses)
    preprocess = [words for words in commands if words[0] == "fairseq-preprocess"]
    assert (len(preprocess), sum("--joined-dictionary" in words for words in preprocess)) == made
    if "--only-source" in preprocess[0] and words[0] != "prepare-imdb.sh":
        assert option(preprocess[0], "--padding-factor") == "1"
    assert commands[-1][0] == "mv"
    assert commands[-1][1] in (f"{commands[-1][2]}.partial", option(preprocess[-1], "--destdir"))
    assert commands[-1][2].endswith("/bin")


def test_nmts_splits_and_merges(tmp_path: Path) -> None:
    commands = dry_run("prepare-wmt15-ende.sh", RUNS=tmp_path, FROM="/a")
    assert [words[2] for words in commands if words[1].endswith("unpack.py")][0] == "/a/de-en.tgz"
    joint = next(words for words in commands if words[0] == "fairseq-preprocess")
    assert option(joint, "--testpref") == f"{tmp_path}/wmt15-ende/bpe/test,{tmp_path}/wmt15-ende/bpe/test1"
    learn = next(words for words in commands if words[:2] == ["subword-nmt", "learn-bpe"])
    assert option(learn, "--symbols") == "89500"
    # German's validation set is of the training text; other languages have one.
    german, spanish = (dry_run("prepare-iwslt14.sh", each, RUNS=tmp_path, FROM="/a") for each in ("de", "es"))
    assert [sum(words[0] == "awk" for words in each) for each in (german, spanish)] == [4, 0]


@pytest.mark.parametrize("row", ["untied", "wt", "twwt"])
def test_the_small_presets_are_the_recipe_for_multi30k(row: str, tmp_path: Path) -> None:
    """So that RESULTS.md is of them too; only what is written where, and how often, is their own."""

    def settings(*flags: str) -> dict[str, Any]:
        args = options.parse_args_and_arch(options.get_training_parser(), list(flags))
        cfg = OmegaConf.to_container(convert_namespace_to_omegaconf(args), resolve=True)
        sections = ("model", "task", "criterion", "optimizer", "lr_scheduler", "optimization", "dataset")
        apart = ("data", "source_lang", "target_lang", "_name")
        return {f"{s}.{name}": value for s in sections for name, value in cfg[s].items() if name not in apart}

    recipe = command_of(dry_run("train-multi30k.sh", row, RUNS=prepared(tmp_path)), "fairseq-train")
    preset = option(recipe, "--arch").replace("lstm_nmt", "lstm_nmt_small")
    assert settings(*recipe[1:]) == settings("data-bin", "--arch", preset)


def test_ngrams(tmp_path: Path) -> None:
    """Every smoothing method in every form, and table 6's 5-grams, on the text of the language models."""
    kn5, _ = dry_run("train-table6-small.sh", "kn5", RUNS=prepared(tmp_path))
    text = f"{tmp_path}/ptb/text"
    texts = [f"{text}/{part}.txt" for part in ("train", "valid", "test")]
    assert kn5[kn5.index("ngram") :][:7] == ["ngram", texts[0], "--order", "5", "--test", *texts[1:]]
    commands = [words for words in dry_run("measure-lecture-ngrams.sh", RUNS=tmp_path) if "ngram" in words]
    measured = set()
    for words in commands:
        assert words[words.index("ngram") + 1] == f"{text}/train.txt"
        assert words[words.index("--test") + 1 : words.index("--test") + 3] == [f"{text}/test.txt", f"{text}/valid.txt"]
        form = "back-off" if "--back-off" in words else None
        measured.add((option(words, "--smoothing"), form, option(words, "--order")))
    assert measured == {
        (name, form if form != each.forms[0] else None, order)
        for name, each in SMOOTHINGS.items()
        for form in each.forms
        for order in "345"
    }
    logs = [words[words.index(">") + 1] for words in commands]
    assert len(set(logs)) == len(logs) == 39


def test_the_table_of_smoothing_methods(tmp_path: Path) -> None:
    """Each row has the perplexities of its own command, test before valid."""
    says = 'echo head; printf \'  82,430 0 %s%s.5 %s\\n\' ${#*} $4 "$6" ${#*} 9 "$7"'
    path = write_programs(tmp_path / "programs", {"fairseq-tiedemb": says})
    process = run_recipe("measure-lecture-ngrams.sh", RUNS=prepared(tmp_path / "a folder"), ORDERS="2 3", PATH=path)
    head, *table = process.stdout.rpartition("\n\n")[2].splitlines()
    assert head.split() == ["perplexity:", "test", "(valid)", "order", "2", "order", "3"]
    assert len(table) == 13
    # The program says its number of arguments and then the order, or 9 of the second text.
    assert table[-2].split() == ["modified", "Kneser-Ney", "92.5", "(99.5)", "93.5", "(99.5)"]


REFUSED = [
    (["measure-lecture-ngrams.sh", "katz"], {}, "needs no arguments; got 1"),
    (["measure-tables3-4.sh"], {"SETS": "{folder}"}, "SETS: needs a folder with one or more of .*; got '{folder}'"),
    (["measure-tables3-4.sh", "wt"], {"SETS": "{folder}"}, "needs no argument; got 1"),
    (["measure-export.sh", "plain"], {"ROUNDS": 0}, "ROUNDS: needs a number from 1 on; got 0"),
    (["train-small-record.sh", "wt"], {"SPLITS": "test"}, "SPLITS: needs valid, or valid and test; got test"),
    (
        ["train-small-record.sh", "all"],
        {"SPLITS": "valid test"},
        "SPLITS: needs valid with the row of an ingredient; got valid test",
    ),
    (["train-table2.sh", "tied"], {"CORPUS": "text8"}, "CORPUS: needs imdb or ptb; got text8"),
    (["train-table2.sh", "tied"], {"EPOCHS": 0}, "EPOCHS: needs a whole number from 1 on; got 0"),
    (["train-table2.sh", "tied"], {"SETS": "{folder}"}, "SETS: needs a folder with one or more of EN-SIMLEX-999.txt"),
    (["train-table2.sh", "tied"], {"QUESTIONS": "{folder}"}, "QUESTIONS: needs SETS, too; got none"),
    (["train-table5-large.sh", "rhn"], {"GPUS": "two"}, "GPUS: needs a number; got two"),
    (["train-liu-table4-dynamicconv-iwslt14.sh", "plain"], {"GPUS": "two"}, "GPUS: needs a number; got two"),
    (["train-liu-small.sh", "tatoeba-de", "untied"], {}, "CORPUS METHOD: needs a row of .*; got tatoeba-de untied."),
    (["train-table6-small.sh", "wt"], {"LR": 0.5}, "LR: needs a recipe that has this setting; got 0.5. Leave it out;"),
    (["train-table6-small.sh", "wt"], {"MERGES": 100}, "MERGES: needs a recipe that has this setting; got 100."),
    (["train-table6-small.sh", "kn5"], {"BEAM": 3}, "BEAM: needs a recipe that has this setting; got 3. Leave it out"),
    (["train-multi30k.sh", "wt"], {"UPDATES": "abc"}, "UPDATES: needs a whole number from 1 on; got abc. Use 1, say"),
    (["train-multi30k.sh", "wt"], {"MAX_TOKENS": "1e3"}, "MAX_TOKENS: needs a whole number from 1 on; got 1e3"),
    (["train-liu-small.sh", "multi30k", "plain"], {"UPDATES": "08"}, "UPDATES: needs a whole number from 1 on; got 08"),
    (["train-lecture-self-normalised.sh", "alpha-0"], {"WORDS": 0.7}, "WORDS: needs a recipe that has this setting"),
    (["train-multi30k.sh", "wt"], {"NODES": "two"}, "NODES: needs a number from 1 on; got two"),
    (["train-multi30k.sh", "wt"], {"NODES": 2, "NODE": 2}, "NODE: needs 0 to 1, of NODES=2; got 2"),
    (["train-multi30k.sh", "wt"], {"NODE": 1}, "NODE: needs 0 to 0, of NODES=1; got 1"),
    (["train-multi30k.sh", "wt"], {"GPUS": "08"}, "GPUS: needs a number; got 08"),
    (["train-multi30k.sh", "wt"], {"NODES": 2, "MASTER": "host:"}, "MASTER: needs HOST:PORT of .*; got 'host:'"),
    (["train-multi30k.sh", "wt"], {"NODES": 2, "MASTER": "host"}, "MASTER: needs HOST:PORT of .*; got 'host'"),
    (["train-multi30k.sh", "wt"], {"PRECISION": "bf32"}, "PRECISION: needs float32, bf16 or fp16; got bf32"),
    (["prepare-imdb.sh"], {"COUNTS": "1 2"}, "COUNTS: needs tokens of train and valid, and types; got 1 2"),
    (["prepare-imdb-lm.sh"], {"COUNTS": "1 2"}, "COUNTS: needs tokens of train, valid and test, and types; got 1 2."),
    (["prepare-text8.sh"], {"COUNTS": "1 2"}, "COUNTS: needs tokens of train, valid and test, and types; got 1 2."),
    (["prepare-imdb-lm.sh"], {"REVIEWS": "../all"}, "REVIEWS: needs a positive number; got ../all."),
    (["prepare-iwslt14.sh"], {}, "needs one LANGUAGE; got 0 arguments"),
    (["prepare-iwslt14.sh", "fr"], {}, "LANGUAGE: needs de, es or ro; got fr"),
    (["prepare-iwslt14.sh", "es"], {}, "FROM: needs the file es-en.tgz, which no mirror has; got none"),
    (["prepare-tatoeba.sh"], {}, "needs one LANGUAGE; got 0 arguments"),
    (["prepare-tatoeba.sh", "it"], {}, "LANGUAGE: needs de, es, fr or ro; got it"),
    (["prepare-tatoeba.sh", "de"], {}, "FROM: needs a file of sentence pairs; got none. Use FROM=.*deu-eng.zip"),
]


@pytest.mark.parametrize(("words", "variables", "message"), REFUSED)
def test_refused(words: list[str], variables: dict[str, object], message: str, tmp_path: Path) -> None:
    given = {name: str(value).format(folder=tmp_path) for name, value in variables.items()}
    assert re.search(message.format(folder=tmp_path), refusal(*words, RUNS=prepared(tmp_path / "runs"), **given))


def test_commands_are_shown_as_they_can_be_pasted(tmp_path: Path) -> None:
    write_multi30k(tmp_path, lines=3)
    dry = run_recipe("prepare-multi30k.sh", RUNS=tmp_path / "a b", FROM=tmp_path, DRY_RUN=1).stdout.splitlines()
    assert dry[0].startswith(f"rm -rf {tmp_path}/a\\ b/")
    process = run_recipe("prepare-multi30k.sh", RUNS=tmp_path / "a b", FROM=tmp_path, status=1)
    # Between what they print themselves, as a shell shows them; it stops when lines are counted.
    done = [line for line in process.stdout.splitlines() if line]
    assert [line.removeprefix("$ ") for line in done] == dry[: len(done)]
    assert all(line.startswith("$ ") for line in done)
    assert "train.de: needs 29000 lines; got 3" in process.stderr
    process = run_recipe("prepare-multi30k.sh", RUNS=tmp_path / "runs", FROM=tmp_path / "a b", status=1)
    assert f"FROM={tmp_path}/a b: needs train.lc.norm.tok.de or train.de; found neither" in process.stderr


@pytest.mark.parametrize(
    ("active", "ready", "remedy"),
    [
        ("/an/environment", False, "`pip install subword-nmt` in the active environment, /an/environment; or `make"),
        ("", False, "`make venv`, or `pip install subword-nmt`."),
        ("", True, "`make clean venv`."),
        ("REPOSITORY/.venv", True, "`make clean venv`."),
    ],
)
def test_missing_command(active: str, ready: bool, remedy: str, tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    for name in ("bash", "basename", "dirname", "env"):
        (tmp_path / "bin" / name).symlink_to(str(shutil.which(name)))
    # A checkout of which it is known whether it has its environment.
    (tmp_path / "recipes").mkdir()
    for name in ("common.sh", "prepare-multi30k.sh"):
        shutil.copy(RECIPES / name, tmp_path / "recipes")
    (tmp_path / ".venv").mkdir()
    if ready:
        (tmp_path / ".venv/.ready").touch()
    variables = {"PATH": str(tmp_path / "bin"), "VIRTUAL_ENV": active.replace("REPOSITORY", str(tmp_path))}
    command = [tmp_path / "recipes/prepare-multi30k.sh"]
    process = subprocess.run(command, env=variables, capture_output=True, text=True)
    assert process.returncode == 1
    assert f"subword-nmt: no such command. Use {remedy}" in process.stderr


def test_a_row_without_settings_trains_nothing() -> None:
    program = f"source {RECIPES}/common.sh; run_training folder data --lr 1"
    process = subprocess.run(["bash", "-c", program, "recipe"], capture_output=True, text=True)
    assert process.returncode == 1
    assert "ROW: needs settings in this recipe; got a row without. Add them to its case." in process.stderr


def test_what_brings_a_command() -> None:
    program = f"source {RECIPES}/common.sh; PATH=/nowhere; basename() {{ echo x; }}; "
    program += "for name in curl sha256sum fairseq-train; do (need $name) || true; done"
    variables = {"VIRTUAL_ENV": "/an/environment", "PATH": os.environ["PATH"]}
    process = subprocess.run(["bash", "-c", program], env=variables, capture_output=True, text=True)
    for name, remedy in (
        ("curl", "your system's package curl"),
        ("sha256sum", "your system's package coreutils"),
        ("fairseq-train", f"`pip install {REPOSITORY}` in the active environment, /an/environment"),
    ):
        assert f"{name}: no such command. Use {remedy}" in process.stderr
    pinned = re.findall(r"sacremoses==[\d.]+", (REPOSITORY / "setup.py").read_text())
    assert re.findall(r"sacremoses==[\d.]+", (RECIPES / "common.sh").read_text()) == pinned
