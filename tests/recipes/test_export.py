"""The recipe that holds CTranslate2 against fairseq-generate: commands, search, and a run on a few lines."""

import argparse
import json
import math
import os
import re
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from fairseq_tiedemb.checkpoints.reading import read_checkpoint

from ..export.test_to_ctranslate2 import OF_ENCODER, SIZES, encode, export, needs_engine, write_checkpoint
from .shell import RECIPES, SHARED_DATA, dry_run, needs_sacremoses, option, refusal, run_python, run_recipe

SCRIPT = "measure-export.sh"


def test_all_search_alike_and_run_once_a_round(tmp_path: Path) -> None:
    folder = tmp_path / "multi30k/transformer-cosine-7"
    folder.mkdir(parents=True)
    (folder / "test.bleu").touch()
    settings = {"RUNS": tmp_path, "SEED": 7, "ROUNDS": 2, "BEAM": 3, "LENPEN": 0.6}
    commands = dry_run(SCRIPT, "cosine", **settings)
    searches = [words for words in commands if "--beam" in words]
    assert [words[0] for words in searches] == ["fairseq-generate", "python", "python"] * 2
    assert {(option(words, "--beam"), option(words, "--lenpen")) for words in searches} == {("3", "0.6")}
    exports = [words for words in commands if "export" in words]
    assert [option(words, "--quantization") for words in exports] == ["float32", "int8"]
    assert {option(words, "--data") for words in exports} == {f"{tmp_path}/multi30k/bin"}
    assert {words[words.index("export") + 1] for words in exports} == {f"{folder}/checkpoint_best.pt"}
    scored = [option(words, "--input") for words in commands[-3:]]
    assert scored == [f"{folder}/{name}.hyp" for name in ("fairseq", "float32", "int8")]


def test_what_is_not_trained_is_trained_first(tmp_path: Path) -> None:
    commands = dry_run(SCRIPT, "distance", RUNS=tmp_path, FROM=tmp_path, SEED=2)
    [train] = [words for words in commands if words[0] == "fairseq-train"]
    assert option(train, "--sharing-method") == "distance"
    assert option(train, "--save-dir") == f"{tmp_path}/multi30k/transformer-distance-2"


@pytest.mark.parametrize(
    ("words", "rounds", "message"),
    [
        ([], 3, "needs one METHOD; got 0 arguments. Use plain, .* or cosine"),
        (["fairseq"], 3, "METHOD: needs plain, .* or cosine; got fairseq"),
        (["plain"], 0, "ROUNDS: needs a number from 1 on; got 0"),
    ],
)
def test_refusals(words: list[str], rounds: int, message: str, tmp_path: Path) -> None:
    assert re.search(message, refusal(SCRIPT, *words, RUNS=tmp_path, ROUNDS=rounds))


def test_the_missing_engine_is_named_before_anything_is_done(tmp_path: Path) -> None:
    (tmp_path / "python").write_text("#!/bin/sh\nexit 1\n")
    (tmp_path / "python").chmod(0o755)
    path = f"{tmp_path}:{Path(sys.executable).parent}:{os.environ['PATH']}"
    process = run_recipe(SCRIPT, "plain", RUNS=tmp_path / "runs", PATH=path)
    assert process.returncode == 1
    assert "needs the package ctranslate2; got a Python without it. Use pip install" in process.stderr
    assert not (tmp_path / "runs").exists()


@torch.no_grad()
def make_it_constant(model: Any) -> None:
    """Gives a model the same probabilities everywhere: a high length penalty takes "c@@ c@@" by beam 5, else "c@@"."""
    norm, weight = model.decoder.layers[-1].final_layer_norm, model.decoder.output_projection.weight
    for tensor in (norm.weight, norm.bias, weight):
        tensor.zero_()
    words, norm.bias[0], weight[:, 0] = model.decoder.dictionary, 1.0, -20.0
    for word, probability in (("</s>", 0.4), ("c@@", 0.35), ("a@@", 0.15), ("b", 0.1)):
        weight[words.index(word), 0] = math.log(probability)


@needs_engine
@pytest.mark.parametrize(("beam", "lenpen", "best"), [(5, 1.0, "c"), (5, 9.0, "cc"), (1, 9.0, "c")])
def test_the_engine_searches_as_fairseq_generate_does(beam: int, lenpen: float, best: str, tmp_path: Path) -> None:
    for language in ("src", "tgt"):
        Path(tmp_path, f"dict.{language}.txt").write_text("".join(f"{word} 9\n" for word in ("a@@", "b", "c@@", "d")))
    flags = ("--arch", "tied_transformer", "--source-lang", "src", "--target-lang", "tgt", *OF_ENCODER, *SIZES)
    model, task = write_checkpoint(tmp_path / "model.pt", tmp_path, *flags)
    make_it_constant(model)
    state = read_checkpoint(tmp_path / "model.pt", flag="CHECKPOINT")
    torch.save({**state, "model": model.state_dict()}, tmp_path / "model.pt")
    export(tmp_path / "model.pt", tmp_path / "engine", "--data", str(tmp_path))
    sentences = ["a@@ b d", "c@@ d", "b b c@@ c@@ b", "d z"]
    (tmp_path / "in").write_text("".join(f"{line}\n" for line in sentences))
    paths = (tmp_path / name for name in ("engine", "in", "out"))
    process = run_python(RECIPES / "engine.py", *paths, "--beam", beam, "--lenpen", lenpen)
    assert process.returncode == 0, process.stderr
    # fairseq-generate's defaults.
    search = argparse.Namespace(beam=beam, lenpen=lenpen, min_len=1, max_len_a=0, max_len_b=200)
    generator = task.build_generator([model], search)
    tokens = 0
    for line in sentences:
        source = encode(task.source_dictionary, line.split())
        net_input = {"src_tokens": source.unsqueeze(0), "src_lengths": torch.tensor([len(source)])}
        found = generator.generate([model], {"net_input": net_input})[0][0]["tokens"]
        assert task.target_dictionary.string(found, "subword_nmt") == best
        tokens += len(found)
    assert (tmp_path / "out").read_text().splitlines() == [best] * len(sentences)
    assert re.fullmatch(rf"Translated 4 sentences \({tokens} tokens\) in [\d.]+s \([\d.]+ tokens/s\)\n", process.stdout)


@pytest.mark.slow
@needs_engine
@needs_sacremoses
def test_whole_recipe(tmp_path: Path) -> None:
    source = SHARED_DATA / "multi30k"
    if not source.exists():
        pytest.skip(f"Multi30k is not at {source}")
    variables = {"RUNS": tmp_path / "runs", "RESULTS": tmp_path / "results", "FROM": source}
    process = run_recipe(SCRIPT, "distance", SMOKE=1, **variables)
    assert process.returncode == 0, process.stderr
    folder = tmp_path / "runs/multi30k-smoke/transformer-distance-1"
    found = {}
    for name in ("fairseq", "float32", "int8"):
        result = json.loads((tmp_path / f"results/export/distance,{name}-1.json").read_text())
        found[name] = {column: figure["value"] for column, figure in result["figures"].items()}
        [speed] = re.findall(r"([\d.]+) tokens/s\)", (folder / f"speed-{name}.log").read_text())
        assert found[name]["speed"] == float(speed)
        assert result["command"] == "SMOKE=1 recipes/measure-export.sh distance"
    assert found["fairseq"]["same"] == 40
    assert found["float32"]["same"] == 40
    assert found["float32"]["test"] == found["fairseq"]["test"]
