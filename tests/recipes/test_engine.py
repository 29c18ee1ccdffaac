"""`recipes/engine.py`: CTranslate2 searches as fairseq-generate does."""

import argparse
import math
import re
from pathlib import Path
from typing import Any

import pytest
import torch

from fairseq_tiedemb.checkpoints.reading import read_checkpoint

from ..export.test_to_ctranslate2 import OF_ENCODER, SIZES, encode, export, needs_engine, write_checkpoint
from .shell import RECIPES, run_python


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
