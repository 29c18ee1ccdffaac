"""Models in CTranslate2's format: the engine translates, scores and continues as fairseq's beam search does."""

import argparse
import json
import re
from pathlib import Path
from typing import Any

import pytest
import torch
from fairseq.data import Dictionary
from torch import Tensor, nn

from fairseq_tiedemb.cli import main
from fairseq_tiedemb.sharing import SHARING_METHODS, SharingMethod

from .. import untrained
from ..conftest import Cli
from ..crossing import crossed
from .test_to_fairseq import FOLDED as SCALING

FOLDED = [*SCALING, "distance"]  # this format has biases, too

needs_engine = pytest.mark.skipif(
    "not __import__('importlib.util').util.find_spec('ctranslate2')",
    reason="needs CTranslate2: pip install ctranslate2",
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
    "merged": ["--merge-src-tgt-embed"],
}
LANGUAGE_MODELS = {
    "untied": ["--add-bos-token"],
    "tied": [DECODER, "--decoder-normalize-before"],
    "factors": [DECODER, *FACTORS, "--decoder-normalize-before"],
    "narrow": [*NARROW, "--decoder-input-dim", 10, *PROJECTION],
    "bare": ["--decoder-normalize-before", "--no-decoder-final-norm"],
}
BEAM, LONGEST = 4, 50
SEARCH: dict[str, Any] = {"beam_size": BEAM, "num_hypotheses": BEAM, "return_scores": True}
ROUNDING = 5e-6  # of scores of a few units, in float32; 2.9e-6 was seen


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
    words, column = decoder.dictionary, 0
    if hasattr(output, "table"):  # a feature map may move the feature
        column = int(output.table.mapped(torch.eye(1, output.weight.size(1))).argmax())
        for own in output.table.method_parameters.values():
            own.sigmoid_()
    output.weight[:, column] = 0.0
    output.weight[words.eos(), column], output.weight[words.pad(), column] = 1.2, -20.0


def search(
    model: Any, task: Any, sources: list[Tensor], *, min_len: int = 0, **options: Any
) -> list[list[tuple[list[str], float]]]:
    """fairseq's beam search: words and score of all of its hypotheses of each sentence, the best first."""
    settings = argparse.Namespace(beam=BEAM, min_len=min_len, max_len_a=0, max_len_b=LONGEST)
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
            assert score == pytest.approx(scores.get(words, score), abs=ROUNDING)
            assert score > least - ROUNDING


def export(checkpoint: Path, output: Path, *flags: str) -> None:
    assert main(["export", str(checkpoint), str(output), "--to", "ctranslate2", *flags]) == 0


def sentences(folder: Path, count: int) -> list[list[str]]:
    return [line.split() for line in (folder / "test.src").read_text().splitlines()[:count]]


def encode(words: Dictionary, sentence: list[str]) -> Tensor:
    return words.encode_line(" ".join(sentence), add_if_not_exist=False).long()


@needs_engine
@pytest.mark.parametrize(("name", "method"), crossed(TRANSLATION, FOLDED))
def test_the_engine_translates_alike(
    name: str, method: str, parallel_data: Path, text_folder: Path, tmp_path: Path
) -> None:
    import ctranslate2

    flags = ("--arch", "tied_transformer", "--sharing-method", method, *OF_ENCODER, *SIZES, *TRANSLATION[name])
    model, task = write_checkpoint(tmp_path / "model.pt", parallel_data, *flags)
    export(tmp_path / "model.pt", tmp_path / "engine")
    texts = sentences(text_folder, 4)
    expected = search(model, task, [encode(task.source_dictionary, text) for text in texts])
    translator = ctranslate2.Translator(str(tmp_path / "engine"), intra_threads=1, compute_type="float32")
    found = translator.translate_batch(texts, **SEARCH, min_decoding_length=0, max_decoding_length=LONGEST)
    assert len({str(hypotheses) for hypotheses in expected}) > 1
    assert_alike(found, expected, "hypotheses")


@needs_engine
@pytest.mark.parametrize(("name", "method"), crossed(LANGUAGE_MODELS, FOLDED))
def test_the_engine_continues_and_scores_texts_alike(
    name: str, method: str, lm_data: Path, text_folder: Path, tmp_path: Path
) -> None:
    import ctranslate2

    flags = ("--task", "language_modeling", "--arch", "tied_transformer_lm", "--sharing-method", method, *SIZES)
    flags = (*flags, "--tokens-per-sample", 60, *LANGUAGE_MODELS[name])
    model, task = write_checkpoint(tmp_path / "model.pt", lm_data, *flags)
    export(tmp_path / "model.pt", tmp_path / "engine")
    words = task.dictionary
    first = words.bos() if "--add-bos-token" in flags else words.eos()
    generator = ctranslate2.Generator(str(tmp_path / "engine"), intra_threads=1, compute_type="float32")
    assert first == words.index(json.loads((tmp_path / "engine" / "config.json").read_text())["bos_token"])
    texts = sentences(text_folder, 4)
    for text, found in zip(texts, generator.score_batch([[words[first], *text] for text in texts]), strict=True):
        target = encode(words, text)
        inputs = torch.cat((torch.tensor([first]), target[:-1])).unsqueeze(0)
        output = model(inputs)
        scores = model.get_normalized_probs(output, log_probs=True)[0].gather(1, target.unsqueeze(1))
        rounding = 5e-7 * output[0].abs().max().item()  # of the greatest score, in float32
        assert found.log_probs == pytest.approx(scores[:-1, 0].tolist(), rel=1e-6, abs=rounding)
    if name == "bare":  # which nothing makes end
        return
    expected = search(model, task, [torch.tensor([first])], bos_token=first)
    continued = generator.generate_batch([[words[first]]], **SEARCH, include_prompt_in_result=False, max_length=LONGEST)
    assert_alike(continued, expected, "sequences")


@needs_engine
def test_a_tied_table_is_kept_once_and_int8_is_smaller_and_scores_alike(parallel_data: Path, tmp_path: Path) -> None:
    import ctranslate2

    sizes, scores = {}, {}
    sources, targets = [["a", "b", "c"], ["j"]], [["c", "b", "a"], ["a", "d"]]
    for name in ("untied", "decoder"):
        flags = ("--arch", "tied_transformer", "--sharing-method", "l2-input", *OF_ENCODER, *SIZES)
        write_checkpoint(tmp_path / f"{name}.pt", parallel_data, *flags, *TRANSLATION[name][:1])
        for quantization in ("float32", "int8"):
            folder = tmp_path / f"{name}-{quantization}"
            export(tmp_path / f"{name}.pt", folder, "--quantization", quantization)
            names = ["config.json", "model.bin", "shared_vocabulary.json"]
            assert sorted(path.name for path in folder.iterdir()) == names
            sizes[name, quantization] = (folder / "model.bin").stat().st_size
            translator = ctranslate2.Translator(str(folder), intra_threads=1)
            assert translator.compute_type.startswith(quantization)
            found = translator.score_batch(sources, targets)
            scores[name, quantization] = torch.tensor([score for each in found for score in each.log_probs])
    words = json.loads((tmp_path / "untied-int8" / "shared_vocabulary.json").read_text())
    assert words[:4] == ["<s>", "<blank>", "</s>", "<unk>"]  # by whose names the engine knows them
    table = len(words) * 16 * 4
    assert table / 2 < sizes["untied", "float32"] - sizes["decoder", "float32"] < 1.1 * table
    # A byte for a number of a matrix; scales of rows, biases and positions stay, which are much of so small a model.
    assert sizes["untied", "int8"] < 0.7 * sizes["untied", "float32"]
    for name in ("untied", "decoder"):
        difference = (scores[name, "int8"] - scores[name, "float32"]).abs().max()
        assert 0 < difference < 0.01 * scores[name, "float32"].abs().max()


@needs_engine
def test_fairseqs_own_models_and_two_dictionaries(tmp_path: Path) -> None:
    import ctranslate2

    data = tmp_path / "data"
    data.mkdir()
    for language, words in (("src", "cba"), ("tgt", "abcde")):
        (data / f"dict.{language}.txt").write_text("".join(f"{word} 9\n" for word in words))
    flags = ("--arch", "transformer", "--source-lang", "src", "--target-lang", "tgt", *OF_ENCODER, *SIZES)
    model, task = write_checkpoint(tmp_path / "model.pt", data, *flags)
    data.rename(tmp_path / "moved")
    export(tmp_path / "model.pt", tmp_path / "engine", "--data", str(tmp_path / "moved"))
    translator = ctranslate2.Translator(str(tmp_path / "engine"), intra_threads=1)
    sources = [["a", "b", "c"], ["c"], ["z", "a"]]
    found = translator.translate_batch(sources, **SEARCH, min_decoding_length=0, max_decoding_length=LONGEST)
    expected = search(model, task, [encode(task.source_dictionary, each) for each in sources])
    assert_alike(found, expected, "hypotheses")


@needs_engine
def test_a_method_with_parameters_and_a_linear_map(
    parallel_data: Path, text_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import ctranslate2

    own = SharingMethod(
        name="own",
        summary="",
        source="",
        offset=lambda n, own: own["t"] * n,
        parameters={"t": lambda size, width: torch.tensor(0.1)},
        feature_map=lambda width: nn.Linear(width, width),
    )
    monkeypatch.setitem(SHARING_METHODS, "own", own)
    flags = ("--arch", "tied_transformer", "--sharing-method", "own", DECODER, *OF_ENCODER, *SIZES)
    model, task = write_checkpoint(tmp_path / "model.pt", parallel_data, *flags)
    export(tmp_path / "model.pt", tmp_path / "engine")
    translator = ctranslate2.Translator(str(tmp_path / "engine"), intra_threads=1)
    text, target = sentences(text_folder, 1)[0], ["a", "b", "c"]
    [found] = translator.score_batch([text], [target])
    source, words = encode(task.source_dictionary, text), encode(task.target_dictionary, target)
    output = model(source.unsqueeze(0), torch.tensor([len(source)]), words.roll(1).unsqueeze(0))
    scores = model.get_normalized_probs(output, log_probs=True)[0].gather(1, words.unsqueeze(1))
    assert found.log_probs == pytest.approx(scores[:, 0].tolist(), rel=1e-5)


def refused(tmp_path: Path, cli: Cli, *flags: object) -> str:
    return cli("export", tmp_path / "model.pt", tmp_path / "engine", *flags, status=2).err


ENGINE_LACKS = [
    # The model, what else it has, its task, and what is said.
    ("tied_lightconv", {}, "translation", "got tied_lightconv, which .* Use --to fairseq, or --user-dir"),
    ("tied_lightconv", {"sharing_method": "distance"}, "translation", "tied_lightconv, which is neither. Use --user-d"),
    ("lightconv", {}, "translation", "got lightconv, which is neither. Use --user-dir"),
    ("tied_lightconv_iwslt_de_en", {}, "translation", "got tied_lightconv_iwslt_de_en, .* Use --to fairseq"),
    ("lstm_nmt_wt", {}, "translation", "got lstm_nmt_wt, which is neither. Use --user-dir"),
    ("zaremba_lm_small_wt", {}, "contiguous_lm", "got zaremba_lm_small_wt, .* Use --user-dir"),
    ("feedforward_lm", {}, "contiguous_lm", "got feedforward_lm, .* Use --user-dir"),
    ("word2vec_cbow", {}, "word_pairs", "got word2vec_cbow, .* Use fairseq-tiedemb vectors"),
    ("tied_transformer_lm", {}, "contiguous_lm", "model of --task language_modeling; got contiguous_lm"),
    ("tied_transformer", {"adaptive_softmax_cutoff": "4,8"}, "translation", "softmax-cutoff 4,8"),
    ("tied_transformer_lm", {"adaptive_input": True}, "language_modeling", "got --adaptive-input True"),
    ("tied_transformer", {"no_token_positional_embeddings": True}, "translation", "--no-token-positional-embeddings T"),
    ("transformer", {"quant_noise_pq": 0.1}, "translation", "got --quant-noise-pq 0.1, .* Use --user-dir"),
    ("transformer_lm", {"quant_noise_scalar": 0.5}, "language_modeling", "got --quant-noise-scalar 0.5"),
    ("tied_transformer_lm", {"scale_heads": True}, "language_modeling", "NormFormer's scales; got --scale-heads True"),
    ("tied_transformer", {"scale_resids": True}, "translation", "without NormFormer's scales; got --scale-resids True"),
    ("tied_transformer", {"activation_fn": "linear"}, "translation", "got --activation-fn linear"),
    ("tied_transformer", {}, "translation", "got nowhere/dict.LANGUAGE.txt, which is none"),
    ("tied_transformer_lm", {}, "language_modeling", "got nowhere/dict.txt, which is none"),
]


@needs_engine
def test_what_the_engine_has_not_is_refused(tmp_path: Path, cli: Cli) -> None:
    for name, options, task, message in ENGINE_LACKS:
        languages = {"source_lang": None, "target_lang": None}
        key = "arch" if name == "tied_lightconv_iwslt_de_en" else "_name"
        settings = {"model": {key: name, **options}, "task": {"_name": task, "data": "nowhere", **languages}}
        torch.save({"cfg": settings, "model": {"encoder.weight": torch.zeros(1)}}, tmp_path / "model.pt")
        error = refused(tmp_path, cli, "--to", "ctranslate2")
        assert re.search(message, error), error


@needs_engine
def test_scores_that_are_not_affine_are_refused(parallel_data: Path, tmp_path: Path, cli: Cli) -> None:
    flags = ("--arch", "tied_transformer", "--sharing-method", "fixnorm", *OF_ENCODER, *SIZES)
    write_checkpoint(tmp_path / "model.pt", parallel_data, *flags)
    error = refused(tmp_path, cli, "--to", "ctranslate2")
    assert "affine in the features, a matrix and a bias; got --sharing-method fixnorm" in error


@needs_engine
def test_a_training_that_began_with_vectors_or_before_fairseq_0_10(parallel_data: Path, tmp_path: Path) -> None:
    vectors = tmp_path / "vectors"
    vectors.write_text(f"1 16\na {' '.join(['0.1'] * 16)}\n")
    flags = ("--arch", "transformer", "--encoder-embed-path", vectors, "--decoder-embed-path", vectors)
    write_checkpoint(tmp_path / "model.pt", parallel_data, *flags, *OF_ENCODER, *SIZES)
    vectors.unlink()
    export(tmp_path / "model.pt", tmp_path / "engine")
    state = torch.load(tmp_path / "model.pt", weights_only=False)
    state |= {"cfg": None, "args": state["cfg"]["model"]}  # in which fairseq has all settings of a model of this kind
    torch.save(state, tmp_path / "older.pt")
    export(tmp_path / "older.pt", tmp_path / "of_older")
    files = ({path.name: path.read_bytes() for path in (tmp_path / name).iterdir()} for name in ("engine", "of_older"))
    assert "model.bin" in (engine := next(files))
    assert engine == next(files)
