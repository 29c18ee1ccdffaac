"""Recipes for Multi30k: which commands they run (DRY_RUN=1), what they refuse, and one whole run on a few lines."""

import os
import random
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from fairseq import options
from fairseq.dataclass.utils import convert_namespace_to_omegaconf
from omegaconf import OmegaConf

from .shell import RECIPES, REPOSITORY, command_of, dry_run, needs_sacremoses, option, refusal, run_recipe

# What sets each model of train-multi30k.sh apart: its architecture, and the flag that shares.
MODELS = {
    "untied": ("lstm_nmt", None),
    "wt": ("lstm_nmt_wt", None),
    "twwt": ("lstm_nmt_twwt", None),
    "dl4mt_twwt": ("dl4mt_twwt", None),
    "fairseq_untied": ("lstm", None),
    "fairseq_wt": ("lstm", "--share-decoder-input-output-embed"),
    "fairseq_twwt": ("lstm", "--share-all-embeddings"),
}
SHARING_FLAGS = {flag for _, flag in MODELS.values() if flag}


def write_corpus(folder: Path, lines: int) -> None:
    """Writes what SMOKE=1 reads, in the names of a local folder: "German" is "English" with other letters."""
    rng = random.Random(1)
    words = ["".join(rng.choices("abcdefghij", k=rng.randint(2, 6))) for _ in range(50)]
    for split in ("train", "val", "test_2016_flickr"):
        english = "".join(" ".join(rng.choices(words, k=rng.randint(2, 9))) + " .\n" for _ in range(lines))
        (folder / f"{split}.en").write_text(english)
        (folder / f"{split}.de").write_text(english.translate(str.maketrans("abcde", "vwxyz")))


@pytest.mark.parametrize("model", MODELS)
def test_training_command(model: str, tmp_path: Path) -> None:
    train = command_of(dry_run("train-multi30k.sh", model, RUNS=tmp_path), "fairseq-train")
    architecture, flag = MODELS[model]
    assert option(train, "--arch") == architecture
    assert SHARING_FLAGS.intersection(train) == ({flag} if flag else set())
    is_ours = architecture != "lstm"
    assert option(train, "--criterion") == ("tied_cross_entropy" if is_ours else "label_smoothed_cross_entropy")
    assert ("--encoder-bidirectional" in train) != is_ours
    assert model in option(train, "--save-dir")
    assert not list(tmp_path.iterdir()), "DRY_RUN=1 must do nothing"


def test_models_differ_in_nothing_but_sharing(tmp_path: Path) -> None:
    def rest(model: str) -> list[str]:
        train = command_of(dry_run("train-multi30k.sh", model, RUNS=tmp_path), "fairseq-train")
        own = {*SHARING_FLAGS, option(train, "--arch"), option(train, "--save-dir"), option(train, "--log-file")}
        return [word for word in train if word not in own]

    assert rest("untied") == rest("wt") == rest("twwt")
    assert rest("fairseq_untied") == rest("fairseq_wt") == rest("fairseq_twwt")


@pytest.mark.parametrize("row", ["untied", "wt", "twwt"])
def test_the_small_presets_are_this_recipe(row: str, tmp_path: Path) -> None:
    """So that RESULTS.md is of them too; only what is written where, and how often, is their own."""

    def settings(*flags: str) -> dict[str, Any]:
        args = options.parse_args_and_arch(options.get_training_parser(), list(flags))
        cfg = OmegaConf.to_container(convert_namespace_to_omegaconf(args), resolve=True)
        sections = ("model", "task", "criterion", "optimizer", "lr_scheduler", "optimization", "dataset")
        apart = ("data", "source_lang", "target_lang", "_name")
        return {f"{s}.{name}": value for s in sections for name, value in cfg[s].items() if name not in apart}

    recipe = command_of(dry_run("train-multi30k.sh", row, RUNS=tmp_path), "fairseq-train")
    preset = MODELS[row][0].replace("lstm_nmt", "lstm_nmt_small")
    assert settings(*recipe[1:]) == settings("data-bin", "--arch", preset)


def test_a_small_preset_gives_way_to_flags() -> None:
    flags = "data-bin --arch lstm_nmt_small_wt --max-update 9 --total-num-update 9 --lr 0.1 --encoder-embed-dim 8"
    args = options.parse_args_and_arch(options.get_training_parser(), flags.split())
    assert (args.max_update, float(args.total_num_update), args.lr, args.encoder_embed_dim) == (9, 9, [0.1], 8)
    assert (args.warmup_updates, args.criterion, args.max_tokens) == (200, "tied_cross_entropy", 1000)


def test_only_dl4mt_is_trained_with_its_own_optimizer(tmp_path: Path) -> None:
    for model in MODELS:
        train = command_of(dry_run("train-multi30k.sh", model, RUNS=tmp_path), "fairseq-train")
        expected = ("adadelta", "1") if model == "dl4mt_twwt" else ("adam", "3e-3")
        assert (option(train, "--optimizer"), option(train, "--lr")) == expected


def test_training_takes_its_settings_from_variables(tmp_path: Path) -> None:
    settings = {"SEED": 7, "UPDATES": 123, "MAX_TOKENS": 456, "LR": "1e-2", "DROPOUT": 0.5, "EMBED": 8, "HIDDEN": 9}
    commands = dry_run("train-multi30k.sh", "wt", RUNS=tmp_path, PLUGIN="/a/plugin", **settings)
    train = command_of(commands, "fairseq-train")
    assert option(train, "--user-dir") == "/a/plugin"
    assert option(train, "--seed") == "7"
    assert option(train, "--max-update") == option(train, "--total-num-update") == "123"
    assert option(train, "--max-tokens") == "456"
    assert option(train, "--lr") == "1e-2"
    assert option(train, "--dropout") == "0.5"
    assert option(train, "--decoder-out-embed-dim") == "8"
    assert option(train, "--decoder-hidden-size") == "9"


def test_everything_in_one_go_and_the_test_score_last(tmp_path: Path) -> None:
    commands = dry_run("train-multi30k.sh", "twwt", RUNS=tmp_path)
    order = [words[0] for words in commands if words[0].startswith(("curl", "subword", "fairseq", "sacrebleu"))]
    assert order == (
        ["curl"] * 6
        + ["subword-nmt"] * 7
        + ["fairseq-preprocess", "fairseq-train"]
        + ["fairseq-generate", "sacrebleu"] * 2
    )
    preprocess = command_of(commands, "fairseq-preprocess")
    assert "--joined-dictionary" in preprocess
    assert {option(words, "--beam") for words in commands if words[0] == "fairseq-generate"} == {"5"}
    score = commands[-1]
    assert score[1].endswith("test_2016_flickr.en")
    assert option(score, "--tokenize") == "none"


def test_prepared_data_are_used_again(tmp_path: Path) -> None:
    (tmp_path / "multi30k/bin").mkdir(parents=True)
    commands = dry_run("train-multi30k.sh", "twwt", RUNS=tmp_path)
    assert {"subword-nmt", "fairseq-preprocess"}.isdisjoint(words[0] for words in commands)


def test_a_preparation_that_was_interrupted_is_made_again(tmp_path: Path) -> None:
    (tmp_path / "multi30k/bin.partial").mkdir(parents=True)
    commands = dry_run("train-multi30k.sh", "twwt", RUNS=tmp_path)
    folder = tmp_path / "multi30k"
    assert option(command_of(commands, "fairseq-preprocess"), "--destdir") == f"{folder}/bin.partial"
    assert ["mv", f"{folder}/bin.partial", f"{folder}/bin"] in commands


def test_mirror(tmp_path: Path) -> None:
    commands = dry_run("prepare-multi30k.sh", RUNS=tmp_path, FROM="https://mirror.example/tok")
    addresses = [words[-1] for words in commands if words[0] == "curl"]
    assert len(addresses) == 6
    assert addresses[0] == "https://mirror.example/tok/train.lc.norm.tok.de"
    assert addresses[-1] == "https://mirror.example/tok/test_2016_flickr.lc.norm.tok.en"


@pytest.mark.parametrize(
    ("args", "message"),
    [
        ([], "needs one MODEL; got 0 arguments"),
        (["twtw"], "MODEL: needs untied, wt, .*; got twtw"),
    ],
)
def test_train_refuses(args: list[str], message: str) -> None:
    assert re.search(message, refusal("train-multi30k.sh", *args))


def test_prepare_refuses_a_folder_without_the_corpus(tmp_path: Path) -> None:
    process = run_recipe("prepare-multi30k.sh", RUNS=tmp_path / "runs", FROM=tmp_path)
    assert process.returncode == 1
    assert f"FROM={tmp_path}: needs train.lc.norm.tok.de or train.de; found neither" in process.stderr


def test_prepare_refuses_another_corpus(tmp_path: Path) -> None:
    write_corpus(tmp_path, lines=3)
    process = run_recipe("prepare-multi30k.sh", RUNS=tmp_path / "runs", FROM=tmp_path)
    assert process.returncode == 1
    assert "train.de: needs 29000 lines; got 3" in process.stderr


def test_commands_are_shown_as_they_can_be_pasted(tmp_path: Path) -> None:
    write_corpus(tmp_path, lines=3)
    dry = run_recipe("prepare-multi30k.sh", RUNS=tmp_path / "a b", FROM=tmp_path, DRY_RUN=1).stdout.splitlines()
    assert dry[0].startswith(f"rm -rf {tmp_path}/a\\ b/")
    done = run_recipe("prepare-multi30k.sh", RUNS=tmp_path / "a b", FROM=tmp_path).stdout.splitlines()
    # Between what they print themselves, as a shell shows them; it stops when lines are counted.
    shown = [line.removeprefix("$ ") for line in done if line]
    assert shown == dry[: len(shown)]
    assert all(line.startswith("$ ") for line in done if line)


@pytest.mark.parametrize(
    ("environment", "ready", "remedy"),
    [
        ("/an/environment", False, "`pip install subword-nmt` in the active environment, /an/environment; or `make"),
        ("", False, "`make venv`, or `pip install subword-nmt`."),
        ("", True, "`make clean venv`."),
        ("REPOSITORY/.venv", True, "`make clean venv`."),
    ],
)
def test_missing_command(environment: str, ready: bool, remedy: str, tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    for name in ("bash", "basename", "dirname", "env"):
        (tmp_path / "bin" / name).symlink_to(str(shutil.which(name)))
    # A checkout of which it is known whether it has its environment.
    recipes = shutil.copytree(RECIPES, tmp_path / "recipes")
    (tmp_path / ".venv").mkdir()
    if ready:
        (tmp_path / ".venv/.ready").touch()
    process = subprocess.run(
        [recipes / "prepare-multi30k.sh"],
        env={"PATH": str(tmp_path / "bin"), "VIRTUAL_ENV": environment.replace("REPOSITORY", str(tmp_path))},
        capture_output=True,
        text=True,
    )
    assert process.returncode == 1
    assert f"subword-nmt: no such command. Use {remedy}" in process.stderr


@pytest.mark.parametrize(
    ("command", "remedy"),
    [
        ("curl", "your system's package curl"),
        ("sha256sum", "your system's package coreutils"),
        ("fairseq-train", f"`pip install {REPOSITORY}` in the active environment, /an/environment"),
    ],
)
def test_what_brings_a_command(command: str, remedy: str) -> None:
    program = f"source {RECIPES}/common.sh; PATH=/nowhere; basename() {{ echo x; }}; need {command}"
    process = subprocess.run(
        ["bash", "-c", program],
        env={"VIRTUAL_ENV": "/an/environment", "PATH": os.environ["PATH"]},
        capture_output=True,
        text=True,
    )
    assert f"{command}: no such command. Use {remedy}" in process.stderr


def test_the_tokeniser_is_that_of_the_package() -> None:
    pinned = re.findall(r"sacremoses==[\d.]+", (REPOSITORY / "setup.py").read_text())
    assert re.findall(r"sacremoses==[\d.]+", (RECIPES / "common.sh").read_text()) == pinned


def evaluate(folder: Path, translations: list[str], **variables: str) -> subprocess.CompletedProcess[str]:
    """Scores translations of a fairseq-generate that is not one: it prints them as they are."""
    references = ["a man sleeps .", "two dogs run on the beach .", "the third one sits here ."]
    (folder / "reference").write_text("\n".join(references) + "\n")
    (folder / "bin").mkdir()
    generate = folder / "bin/fairseq-generate"
    generate.write_text("#!/bin/sh\ncat <<'END'\n" + "\n".join(translations) + "\nEND\n")
    generate.chmod(0o755)
    path = f"{folder / 'bin'}:{Path(sys.executable).parent}:{os.environ['PATH']}"
    files = (folder / "checkpoint.pt", "test", folder / "reference")
    return run_recipe("evaluate.sh", "bin", *files, PATH=path, RUNS=folder, **variables)


def test_evaluate_puts_translations_in_order(tmp_path: Path) -> None:
    shuffled = [
        "S-2\tx",
        "H-2\t-0.1\tthe third one sits here .",
        "H-0\t-0.2\ta man sleeps .",
        "P-0\t-0.2 -0.1",
        "H-1\t-0.3\ttwo dogs run on the beach .",
    ]
    process = evaluate(tmp_path, shuffled)
    assert process.returncode == 0, process.stderr
    assert (tmp_path / "test.hyp").read_text() == (tmp_path / "reference").read_text()
    score = process.stdout.splitlines()[-1]
    assert "tok:none" in score
    assert " = 100.00 " in score


def test_evaluate_refuses_lost_sentences(tmp_path: Path) -> None:
    process = evaluate(tmp_path, ["H-0\t-0.2\ta man sleeps .", "H-2\t-0.1\tthe third one sits here ."])
    assert process.returncode == 1
    assert "test.hyp: needs 3 lines; got 2" in process.stderr


@needs_sacremoses
def test_evaluate_scores_detokenised_text_too(tmp_path: Path) -> None:
    process = evaluate(tmp_path, [f"H-{index}\t0\ta man sleeps ." for index in range(3)], DETOKENIZE="en")
    assert process.returncode == 0, process.stderr
    assert (tmp_path / "test.detok.hyp").read_text() == 3 * "a man sleeps.\n"
    assert "two dogs run on the beach." in (tmp_path / "test.detok.ref").read_text()
    scores = [line for line in process.stdout.splitlines() if line.startswith("BLEU|")]
    assert len(scores) == 2
    assert "tok:13a" in scores[0]
    assert "tok:none" in scores[1]


@pytest.mark.slow
@pytest.mark.parametrize("model", ["twwt", "fairseq_twwt"])
def test_whole_recipe(model: str, tmp_path: Path) -> None:
    write_corpus(tmp_path, lines=300)
    variables = {"SMOKE": 1, "FROM": tmp_path, "RUNS": tmp_path / "runs"}
    process = run_recipe("train-multi30k.sh", model, **variables)
    assert process.returncode == 0, process.stderr
    scores = [line for line in process.stdout.splitlines() if line.startswith("BLEU|")]
    assert len(scores) == 2
    assert all("tok:none" in score for score in scores)
    folder = tmp_path / f"runs/multi30k-smoke/{model}-1"
    assert len((folder / "test.hyp").read_text().splitlines()) == 40
