"""Models whose sentences end, fairseq's beam search of them, and whether an engine's is alike."""

import argparse
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from .. import untrained

BEAM, LONGEST = 4, 50
SEARCH: dict[str, Any] = {"beam_size": BEAM, "num_hypotheses": BEAM, "return_scores": True}


def write_checkpoint(path: Path, data: Path, *flags: object) -> tuple[Any, Any]:
    """Writes the checkpoint of a model whose sentences end; returns the model and its task."""
    model, task = untrained.write_checkpoint(path, data, *flags)
    make_it_end(model)
    torch.save({**torch.load(path, weights_only=False), "model": model.state_dict()}, path)
    return model, task


@torch.no_grad()
def make_it_end(model: Any) -> None:
    """Makes one feature a constant that speaks for the end of sentence, and against padding.

    fairseq never chooses padding, whatever its score, and ends what gets too long; the engine does neither.
    """
    decoder = model.decoder
    norm = decoder.layers[-1].final_layer_norm if decoder.layer_norm is None else decoder.layer_norm
    norm.weight[0], norm.bias[0] = 0.0, 8.0
    output = decoder.output_projection
    for linear in (decoder.project_out_dim, getattr(output, "projection", None), getattr(output, "factor", None)):
        if linear is not None:
            linear.weight[0] = linear.weight[:, 0] = 0.0
            linear.weight[0, 0] = 1.0
    words = decoder.dictionary
    output.weight[:, 0] = 0.0
    output.weight[words.eos(), 0], output.weight[words.pad(), 0] = 1.2, -20.0


def search(model: Any, task: Any, sources: list[Tensor], **options: Any) -> list[list[tuple[list[str], float]]]:
    """fairseq's beam search: words and score of all of its hypotheses of each sentence, the best first."""
    settings = argparse.Namespace(beam=BEAM, min_len=0, max_len_a=0, max_len_b=LONGEST)
    generator = task.build_generator([model], settings)
    found = []
    for source in sources:
        net_input = {"src_tokens": source.unsqueeze(0), "src_lengths": torch.tensor([len(source)])}
        hypotheses = generator.generate([model], {"net_input": net_input}, **options)[0]
        words = task.target_dictionary.symbols
        found.append([([words[i] for i in each["tokens"][:-1]], each["score"].item()) for each in hypotheses])
    assert max(len(words) for hypotheses in found for words, _ in hypotheses) < LONGEST
    return found


def assert_alike(found: list[Any], expected: list[list[tuple[list[str], float]]], key: str) -> None:
    """Checks all hypotheses and scores; `found` is what the engine returns.

    In its last step fairseq ends as many hypotheses as are missing, and the engine all that can end, of which it keeps
    the best: none is worse than fairseq's then, and the first is the same.
    """
    for each, hypotheses in zip(found, expected, strict=True):
        scores = {tuple(words): score for words, score in hypotheses}
        alike = [tuple(words) for words in getattr(each, key)]
        assert alike[0] == next(iter(scores))
        assert len(scores.keys() & alike) >= BEAM // 2
        for words, score, least in zip(alike, each.scores, scores.values(), strict=True):
            assert score == pytest.approx(scores.get(words, score), abs=2e-6)
            assert score > least - 2e-6
