"""Models in CTranslate2's format: the engine translates, scores and continues as fairseq's beam search does."""

import argparse
import json
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from fairseq import options as fairseq_options
from fairseq import tasks
from fairseq.data import Dictionary
from omegaconf import OmegaConf
from torch import Tensor, nn

from fairseq_tiedemb.cli import main
from fairseq_tiedemb.sharing import SHARING_METHODS, SharingMethod

from ..conftest import configuration
from ..models.common import grown
from ..models.families import every_method

needs_engine = pytest.mark.skipif(
    "not __import__('importlib.util').util.find_spec('ctranslate2')",
    reason="needs CTranslate2: pip install 'fairseq-tiedemb[ctranslate2]'",
)

SIZES = [
    *("--decoder-embed-dim", 16, "--decoder-ffn-embed-dim", 16, "--decoder-layers", 2, "--decoder-attention-heads", 2),
    *("--activation-fn", "gelu"),
]
OF_ENCODER = [
    *("--encoder-embed-dim", 16, "--encoder-ffn-embed-dim", 24, "--encoder-layers", 2, "--encoder-attention-heads", 4),
    *("--max-source-positions", 60, "--max-target-positions", 60),
]
FACTORS = ["--embedding-rank", 6]
PROJECTION = ["--projection", "--projection-bias"]
NARROW = ["--decoder-output-dim", 12]
DECODER, ALL = "--share-decoder-input-output-embed", "--share-all-embeddings"
TRANSLATION = {
    "untied": [],
    "decoder": [DECODER, "--encoder-normalize-before", "--decoder-normalize-before"],
    "all": [ALL, "--layernorm-embedding", "--encoder-normalize-before"],
    "factors": [ALL, *FACTORS, *PROJECTION],
    "narrow": [*NARROW, "--decoder-learned-pos", "--no-scale-embedding"],
    "projection": [DECODER, *PROJECTION],
}
LANGUAGE_MODELS = {
    "untied": ["--add-bos-token"],
    "tied": [DECODER, "--decoder-normalize-before", "--no-decoder-final-norm"],
    "factors": [DECODER, *FACTORS, "--decoder-normalize-before"],
    "narrow": [*NARROW, "--decoder-input-dim", 10, *PROJECTION],
}
BEAM, LONGEST = 4, 50


def write_checkpoint(path: Path, data: Path, *flags: object, **settings: Any) -> Any:
    """What fairseq-train would save, of a model that was not trained; returns the model."""
    cfg = configuration(fairseq_options.get_training_parser(), data, *flags)
    task = tasks.setup_task(cfg.task)
    model = grown(task.build_model(cfg.model), std=0.3).eval()
    make_it_end(model)
    saved = {**OmegaConf.to_container(cfg, resolve=True, enum_to_str=True), **settings}
    history = [{"criterion_name": "CrossEntropyCriterion", "lr_scheduler_state": {}, "num_updates": 0}]
    iterator = {"epoch": 1, "iterations_in_epoch": 0}
    state = {"cfg": saved, "args": None, "model": model.state_dict(), "task_state": task.state_dict()}
    torch.save({**state, "optimizer_history": history, "extra_state": {"train_iterator": iterator}}, path)
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
            linear.weight[0] = 0.0
            linear.weight[0, 0] = 1.0
    words = decoder.dictionary
    output.weight[:, 0] = 0.0
    output.weight[words.eos(), 0], output.weight[words.pad(), 0] = 1.2, -20.0


def search(model: Any, task: Any, sources: list[Tensor]) -> list[list[tuple[list[str], float]]]:
    """fairseq's beam search: words and score of all of its hypotheses of each sentence, the best first."""
    settings = argparse.Namespace(beam=BEAM, min_len=0, max_len_a=0, max_len_b=LONGEST)
    generator = task.build_generator([model], settings)
    found = []
    for source in sources:
        net_input = {"src_tokens": source.unsqueeze(0), "src_lengths": torch.tensor([len(source)])}
        hypotheses = generator.generate([model], {"net_input": net_input})[0]
        words = task.target_dictionary.symbols
        found.append([([words[i] for i in each["tokens"][:-1]], each["score"].item()) for each in hypotheses])
    assert max(len(words) for hypotheses in found for words, _ in hypotheses) < LONGEST
    return found


def assert_alike(found: list[Any], expected: list[list[tuple[list[str], float]]], key: str) -> None:
    """Checks all hypotheses and scores; `found` is what the engine returns."""
    assert len({str(hypotheses) for hypotheses in expected}) > 1
    for each, hypotheses in zip(found, expected, strict=True):
        assert getattr(each, key) == [words for words, _ in hypotheses]
        assert each.scores == pytest.approx([score for _, score in hypotheses], abs=2e-6)


def export(checkpoint: Path, output: Path, *flags: str) -> None:
    assert main(["export", str(checkpoint), str(output), "--to", "ctranslate2", *flags]) == 0


def sentences(folder: Path, count: int) -> list[list[str]]:
    return [line.split() for line in (folder / "test.src").read_text().splitlines()[:count]]


def encode(words: Dictionary, sentence: list[str]) -> Tensor:
    return words.encode_line(" ".join(sentence), add_if_not_exist=False).long()


@needs_engine
@every_method
@pytest.mark.parametrize("options", TRANSLATION.values(), ids=TRANSLATION)
def test_the_engine_translates_alike(
    options: list[object], method: str, parallel_data: Path, text_folder: Path, tmp_path: Path
) -> None:
    import ctranslate2

    flags = ("--arch", "tied_transformer", "--sharing-method", method, *OF_ENCODER, *SIZES, *options)
    model, task = write_checkpoint(tmp_path / "model.pt", parallel_data, *flags)
    export(tmp_path / "model.pt", tmp_path / "engine")
    texts = sentences(text_folder, 4)
    expected = search(model, task, [encode(task.source_dictionary, text) for text in texts])
    translator = ctranslate2.Translator(str(tmp_path / "engine"), intra_threads=1, compute_type="float32")
    found = translator.translate_batch(
        texts,
        **{"beam_size": BEAM, "num_hypotheses": BEAM, "return_scores": True},
        **{"min_decoding_length": 0, "max_decoding_length": LONGEST},
    )
    assert_alike(found, expected, "hypotheses")


@needs_engine
@every_method
@pytest.mark.parametrize("options", LANGUAGE_MODELS.values(), ids=LANGUAGE_MODELS)
def test_the_engine_continues_and_scores_texts_alike(
    options: list[object], method: str, lm_data: Path, text_folder: Path, tmp_path: Path
) -> None:
    import ctranslate2

    flags = ("--task", "language_modeling", "--arch", "tied_transformer_lm", "--sharing-method", method, *SIZES)
    model, task = write_checkpoint(tmp_path / "model.pt", lm_data, *flags, "--tokens-per-sample", 60, *options)
    export(tmp_path / "model.pt", tmp_path / "engine")
    words = task.dictionary
    first = words.bos() if model.decoder.cfg.add_bos_token else words.eos()
    generator = ctranslate2.Generator(str(tmp_path / "engine"), intra_threads=1, compute_type="float32")
    texts = sentences(text_folder, 4)
    for text, found in zip(texts, generator.score_batch([[words[first], *text] for text in texts]), strict=True):
        target = encode(words, text)
        inputs = torch.cat((torch.tensor([first]), target[:-1])).unsqueeze(0)
        scores = model.get_normalized_probs(model(inputs), log_probs=True)[0].gather(1, target.unsqueeze(1))
        assert found.log_probs == pytest.approx(scores[:-1, 0].tolist(), abs=2e-6)
