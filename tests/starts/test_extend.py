"""Another dictionary for a trained model: known words score as before, wherever they stand."""

import re
from pathlib import Path
from typing import Any

import pytest
import torch
from fairseq import checkpoint_utils

from fairseq_tiedemb import CountedHead, OutputHead, SharingMethod
from fairseq_tiedemb.cli import main
from fairseq_tiedemb.outputs import OUTPUT_HEADS
from fairseq_tiedemb.sharing import SHARING_METHODS

from ..conftest import Cli
from ..untrained import write_checkpoint

DECODER, ALL = "--share-decoder-input-output-embed", "--share-all-embeddings"
LM = ("--task", "language_modeling", "--arch", "tied_transformer_lm", "--tokens-per-sample", 30)
STREAM = ("--task", "contiguous_lm", "--arch", "tied_lstm_lm", "--decoder-embed-dim", 8, "--decoder-hidden-size", 8)
SIZES = ("--decoder-embed-dim", 8, "--decoder-ffn-embed-dim", 8, "--decoder-layers", 1, "--decoder-attention-heads", 2)
OF_ENCODER = tuple(str(flag).replace("decoder", "encoder") for flag in SIZES)
TRANSLATION = ("--arch", "tied_transformer", "--source-lang", "src", "--target-lang", "tgt", *SIZES, *OF_ENCODER)
CONVOLUTIONS = ("--arch", "fconv", "--source-lang", "src", "--target-lang", "tgt", *SIZES[:2], *OF_ENCODER[:2])
CONVOLUTIONS += ("--encoder-layers", "[(8, 3)]", "--decoder-layers", "[(8, 3)]", "--decoder-out-embed-dim", 8)
WIDE = ("--decoder-embed-dim", 10, "--decoder-input-dim", 10, "--decoder-output-dim", 10)
BANDS = ("--adaptive-input", "--tie-adaptive-weights", "--adaptive-input-cutoff", 6, "--adaptive-softmax-cutoff", 6)
BANDS += ("--adaptive-input-factor", 2, "--adaptive-softmax-factor", 2)
OLD, NEW = "abcdef", "fbxaycd"  # another order, two new words, and one that is left out
# Flags, and the words that the new dictionary has.
MODELS: dict[str, tuple[tuple[Any, ...], str]] = {
    "lstm": ((*STREAM, DECODER, "--sharing-method", "distance"), NEW),
    "lstm untied with P": ((*STREAM, "--projection"), NEW),
    "lstm with noise words": ((*STREAM, DECODER, "--output-layer", "nce"), NEW),
    "lstm with a joint space": ((*STREAM, DECODER, "--output-layer", "joint", "--joint-dim", 6), NEW),
    "a mixture of as many softmaxes as words": (
        (*STREAM, DECODER, "--output-layer", "mixture", "--mixtures", 10),
        "fbadce",
    ),
    "factors": ((*LM, *SIZES, DECODER, "--embedding-rank", 5, "--sharing-method", "cosine"), NEW),
    "factors, as many words as numbers a vector": ((*LM, *SIZES[2:], *WIDE, DECODER, "--embedding-rank", 4), "fbadce"),
    "a parameter a word": ((*LM, *SIZES, DECODER, "--sharing-method", "scaled-words"), NEW),
    "bands": ((*LM, *SIZES, *BANDS), "badcfexy"),
    "bands of the output": ((*STREAM, "--adaptive-softmax-cutoff", 6, "--adaptive-softmax-factor", 2), "badcfexy"),
    "output of fewer words": ((*LM, *SIZES, "--output-dictionary-size", 9), NEW),
    "bands of an LSTM": (
        (*STREAM, DECODER, "--adaptive-softmax-cutoff", 6, "--adaptive-softmax-factor", 2),
        OLD + "xy",
    ),
    "translation": ((*TRANSLATION, DECODER), NEW),
    "merged": ((*TRANSLATION, "--merge-src-tgt-embed"), NEW),
    "one table, inferred languages": ((*TRANSLATION[:2], *TRANSLATION[6:], ALL, "--sharing-method", "l2-input"), NEW),
    "fairseq's": (("--arch", "transformer", *TRANSLATION[2:], DECODER), NEW),
    "two dictionaries": (TRANSLATION, "ac"),
    "words of which one is NUL": ((*STREAM, DECODER), "fb\0adce"),
    "as many words, of which one is NUL": ((*STREAM, DECODER), "fb\0adc"),
    "as many words": ((*TRANSLATION, ALL), "fbxacd"),
    "fairseq's convolutions": (CONVOLUTIONS, "fbxacd"),
}


def folder_of(path: Path, words: str) -> Path:
    """A data folder without texts, from which fairseq infers languages."""
    path.mkdir()
    (path / "train.src-tgt.src.idx").touch()
    for name in ("dict.txt", "dict.src.txt", "dict.tgt.txt"):
        (path / name).write_text("".join(f"{word} {9 - number}\n" for number, word in enumerate(words)))
    return path


def loaded(path: Path) -> tuple[Any, Any]:
    """The model that fairseq loads of a checkpoint, and its task."""
    [model], _, task = checkpoint_utils.load_model_ensemble_and_task([str(path)])
    return model.eval(), task


def scores(model: Any, task: Any, text: str, vocabulary: str) -> torch.Tensor:
    """Log-probabilities up to a constant of a vocabulary's words after each word of a text."""
    words = task.target_dictionary
    tokens = task.source_dictionary.encode_line(" ".join(text), add_if_not_exist=False).long().unsqueeze(0)
    inputs = {"src_tokens": tokens, "src_lengths": torch.tensor([tokens.size(1)])}
    if hasattr(model, "encoder"):
        inputs["prev_output_tokens"] = words.encode_line(" ".join(text), add_if_not_exist=False).long().unsqueeze(0)
    elif "contiguous" in type(task).__name__.lower():
        inputs["stream_position"] = torch.tensor([0])
    with torch.no_grad():
        output = model(**inputs)
        found = model.get_normalized_probs(output, log_probs=True)[0]
    of_words = found[:, [words.index(word) for word in vocabulary]]
    return of_words - of_words[:, :1]


@pytest.mark.parametrize("name", MODELS)
def test_words_that_stay_score_as_before(name: str, tmp_path: Path) -> None:
    flags, words = MODELS[name]
    old, new = folder_of(tmp_path / "old", OLD), folder_of(tmp_path / "new", words)
    model, task = write_checkpoint(tmp_path / "model.pt", old, *flags)
    dictionaries = [f"{new}/dict.txt"]
    if name == "two dictionaries":
        (new / "dict.src.txt").write_text("".join(f"{word} 1\n" for word in NEW))
        dictionaries = [f"{new}/dict.src.txt", *dictionaries]
    files = [str(tmp_path / name) for name in ("model.pt", "out.pt")]
    assert main(["extend", *files, "--dictionary", *dictionaries]) == 0
    extended, its_task = loaded(tmp_path / "out.pt")
    predicted = [each.target_dictionary.symbols[: len(each.target_dictionary)] for each in (task, its_task)]
    kept = [word for word in OLD if all(word in words for words in predicted)]
    first = ["</s>", *kept[:2]] if "bands" in name else kept  # the last band has more words to choose from
    text = list("acac" if name == "two dictionaries" else "abcdabdc")
    torch.testing.assert_close(scores(extended, its_task, text, first), scores(model, task, text, first))


def test_what_has_as_many_rows_as_words_by_chance_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A feature map, and a part of a head, of widths that are the number of words, as other words take their places."""

    class Gated(CountedHead):
        flag = "--output-layer gated"

        def __init__(self, *arguments: Any) -> None:
            super().__init__(*arguments)
            self.gate = torch.nn.Linear(10, 10)

        def scores(self, features: torch.Tensor) -> torch.Tensor:
            return super().scores(features * self.gate(features).sigmoid())

    method = SharingMethod("mapped", "", "", feature_map=lambda width: torch.nn.Linear(width, width))
    head = OutputHead("gated", "", lambda options, table, *_: Gated(table, None, (0, 1)), extends=True)
    monkeypatch.setitem(SHARING_METHODS, "mapped", method)
    monkeypatch.setitem(OUTPUT_HEADS, "gated", head)
    wide = ("--decoder-embed-dim", 10, "--decoder-hidden-size", 10)
    for flags in (("--sharing-method", "mapped"), ("--output-layer", "gated")):
        before, after, dictionary = extended(tmp_path / flags[1], (*STREAM, *wide, DECODER, *flags), words="fbadce")
        own = [key for key in before if re.search(r"feature_map|\.gate\.", key)]
        assert own
        for key in own:
            assert torch.equal(after[key], before[key])
        rows = [dictionary.index(word) for word in OLD]
        table = next(key for key in before if before[key].shape == (10, 10) and key not in own and "output" in key)
        assert torch.equal(after[table][rows], before[table][4:])


def extended(tmp_path: Path, flags: tuple[Any, ...], *start: object, words: str = NEW) -> tuple[Any, Any, Any]:
    """State dicts of a model and of what `extend` makes of it, and the new dictionary."""
    tmp_path.mkdir(exist_ok=True)
    old, new = folder_of(tmp_path / "old", OLD), folder_of(tmp_path / "new", words)
    model, _ = write_checkpoint(tmp_path / "model.pt", old, *flags)
    files = [tmp_path / "model.pt", tmp_path / "out.pt", "--dictionary", new / "dict.txt", *start]
    assert main(["extend", *map(str, files)]) == 0
    found, task = loaded(tmp_path / "out.pt")
    return model.state_dict(), found.state_dict(), task.target_dictionary


def test_new_words_are_drawn_as_those_of_a_new_model(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    torch.manual_seed(1)
    flags = (*STREAM, DECODER, "--output-layer", "nce", "--output-bias-init", "unigram")
    old, new, words = extended(tmp_path, flags, words="".join(map(chr, range(97, 297))))
    assert "10 words as before, 194 new, 0 left out; for --finetune-from-model, without" in capsys.readouterr().out
    drawn, bias = new["decoder.embed_tokens.weight"][10:], new["decoder.output.bias"]
    assert drawn.std().item() == pytest.approx(0.1 / 3**0.5, rel=0.05)  # uniform in [-0.1, 0.1], as Zaremba's
    torch.testing.assert_close(bias[10:], old["decoder.output.bias"].mean().expand(194))
    counts = new["decoder.output.over.counts"]
    assert counts[words.index("g")] == 9 - 6  # of dict.txt
    assert torch.equal(counts[:10], old["decoder.output.over.counts"])


@pytest.mark.parametrize(
    ("flags", "output"),
    [
        (STREAM, "decoder.output"),
        # Whose default has bands, which their criterion alone makes.
        (("--arch", "lstm", *TRANSLATION[2:6], "--decoder-out-embed-dim", 8), "decoder.fc_out"),
    ],
    ids=["ours", "fairseq's"],
)
def test_new_words_start_as_the_mean_of_their_pieces(
    flags: tuple[Any, ...], output: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "pieces").write_text("x a c a\nq b\n")
    old, new, words = extended(tmp_path, flags, "--pieces", tmp_path / "pieces")
    assert "9 words as before, 2 new, 1 of them by --pieces, 1 left out" in capsys.readouterr().out
    for key in ("decoder.embed_tokens.weight", f"{output}.weight"):
        a, c = (old[key][4 + OLD.index(letter)] for letter in "ac")
        torch.testing.assert_close(new[key][words.index("x")], (2 * a + c) / 3)
        assert new[key][words.index("y")].abs().max() <= 0.1


def test_new_words_start_with_their_vectors(tmp_path: Path) -> None:
    (tmp_path / "vectors").write_text(f"y {'0.5 ' * 8}\na {'0.5 ' * 8}\n")
    old, new, words = extended(tmp_path, (*TRANSLATION, DECODER), "--vectors", tmp_path / "vectors")
    for key in ("encoder.embed_tokens.weight", "decoder.embed_tokens.weight", "decoder.output_projection.weight"):
        assert new[key][words.index("y")].eq(0.5).all()
        assert torch.equal(new[key][words.index("a")], old[key][4])


def test_a_word_with_the_name_of_unk_has_a_row_of_its_own(tmp_path: Path) -> None:
    for name, more in (("old", ""), ("new", "g 1\n")):
        path = folder_of(tmp_path / name, OLD) / "dict.txt"
        path.write_text(f"{path.read_text()}<unk> 9 #fairseq:overwrite\n{more}")
    model, _ = write_checkpoint(tmp_path / "model.pt", tmp_path / "old", *STREAM)
    files = [tmp_path / "model.pt", tmp_path / "out.pt", "--dictionary", tmp_path / "new" / "dict.txt"]
    assert main(["extend", *map(str, files)]) == 0
    new = loaded(tmp_path / "out.pt")[0].state_dict()
    for key in ("decoder.embed_tokens.weight", "decoder.output.weight", "decoder.output.bias"):
        assert torch.equal(new[key][:11], model.state_dict()[key]), key


def test_what_is_said_of_two_dictionaries(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_checkpoint(tmp_path / "model.pt", folder_of(tmp_path / "old", OLD), *TRANSLATION)
    files = [
        folder_of(tmp_path / name, words) / "dict.txt" for name, words in (("source", OLD + "x"), ("target", "ac"))
    ]
    words = [tmp_path / "model.pt", tmp_path / "out.pt", "--dictionary", *files]
    assert main(["extend", *map(str, words)]) == 0
    said = "source: 10 words as before, 1 new, 0 left out; target: 6 words as before, 0 new, 4 left out; for --fine"
    assert said in capsys.readouterr().out


def test_the_languages_that_fairseq_inferred_are_kept(tmp_path: Path) -> None:
    old, new = folder_of(tmp_path / "old", OLD), folder_of(tmp_path / "new", NEW)
    (new / "train.src-tgt.src.idx").unlink()
    write_checkpoint(tmp_path / "model.pt", old, *TRANSLATION[:2], *TRANSLATION[6:])
    files = [tmp_path / "model.pt", tmp_path / "out.pt", "--dictionary", new / "dict.src.txt"]
    assert main(["extend", *map(str, files)]) == 0
    assert (loaded(tmp_path / "out.pt")[1].cfg.source_lang, loaded(tmp_path / "out.pt")[1].cfg.target_lang) == (
        "src",
        "tgt",
    )


def test_the_moving_average_and_settings_follow_and_the_rest_of_the_training_is_left(tmp_path: Path) -> None:
    old = folder_of(tmp_path / "old", OLD)
    model, _ = write_checkpoint(tmp_path / "model.pt", old, *STREAM)
    state = torch.load(tmp_path / "model.pt", weights_only=False)
    state["extra_state"] |= {"ema": {key: 2 * value for key, value in state["model"].items()}, "best": 3.0}
    torch.save(state | {"last_optimizer_state": {"much": 1}}, tmp_path / "model.pt")
    new = folder_of(tmp_path / "new", OLD + "x")
    files = [tmp_path / "model.pt", tmp_path / "out.pt", "--dictionary", new / "dict.txt"]
    assert main(["extend", *map(str, files)]) == 0
    found = torch.load(tmp_path / "out.pt", weights_only=False)
    assert found["cfg"]["task"]["data"] == str(new)
    assert "last_optimizer_state" not in found
    assert found["extra_state"].keys() == {"train_iterator", "ema"}
    key = "decoder.embed_tokens.weight"
    for rows, factor in ((found["model"][key], 1), (found["extra_state"]["ema"][key], 2)):
        assert torch.equal(rows[:10], factor * model.state_dict()[key])


REFUSALS: dict[str, tuple[tuple[Any, ...], str, list[str], str]] = {
    # Flags of the model, new words, options, message.
    "classes": (
        (*STREAM, "--output-layer", "classes", "--classes", 2),
        NEW,
        [],
        "softmax, adaptive, nce, sampled, mixture, joint; got --output-layer classes. Use a new training",
    ),
    "another band": ((*LM, *SIZES, *BANDS), "acbdef", [], "needs words that stay in their .*; got 'c', which was"),
    "end of bands": (
        (*LM, *SIZES, "--adaptive-softmax-cutoff", "6,10"),
        OLD + "x",
        [],
        r"needs decoder.adaptive_softmax.\S+ of shape .*; got .* in .*model.pt. Use a model whose tables",
    ),
    "rank": ((*LM, *SIZES, "--embedding-rank", 5), NEW, ["--vectors", "vectors"], "--vectors: .* --embedding-rank 5"),
    "bands": ((*LM, *SIZES, *BANDS), OLD + "x", ["--pieces", "pieces"], "--pieces: .* got --adaptive-input True. Leav"),
    "width": (STREAM, NEW, ["--vectors", "vectors"], "--vectors: needs 8 numbers a word, .*; got 2. Use"),
    "no vectors": (STREAM, NEW, ["--vectors", "none"], "--vectors: needs a file; got none, which is none. Use"),
    "nothing new": (STREAM, OLD, ["--pieces", "pieces"], "--pieces: needs words that --dictionary adds; got none of 0"),
    "piece": (STREAM, NEW, ["--pieces", "wrong"], "--pieces: needs pieces that .* has; got 'z' in 'a z'. Use the segm"),
    "line": (STREAM, NEW, ["--pieces", "words"], "--pieces: needs lines of .*; got 'x' in line 2 of words. Use lines"),
    "two": (STREAM, NEW, ["--dictionary", "b"], "--dictionary: needs 1 at most for this model; got 2. Use"),
    "missing": (STREAM, NEW, ["gone"], "--dictionary: needs a file; got gone, which is none"),
    "empty": (STREAM, "", [], r"--dictionary: needs the dict.*; got .*dict.txt \(without words\). Use the one"),
    "masked": (
        ("--task", "masked_lm", "--arch", "roberta_base", *OF_ENCODER),
        NEW,
        [],
        "needs a translation or language model; got --task masked_lm. Use a new training",
    ),
    "word2vec": (
        ("--task", "word_pairs", "--arch", "word2vec_skipgram"),
        NEW,
        [],
        "got model.pt, of --task word_pairs",
    ),
}


@pytest.mark.parametrize("name", REFUSALS)
def test_refusals_leave_nothing(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cli: Cli) -> None:
    flags, words, options, message = REFUSALS[name]
    old, new = folder_of(tmp_path / "old", OLD), folder_of(tmp_path / "new", words)
    monkeypatch.chdir(tmp_path)
    if name == "word2vec":
        settings = {"model": {"_name": "word2vec_skipgram"}, "task": {"_name": "word_pairs"}}
        torch.save({"cfg": settings, "model": {"weight": torch.zeros(1)}}, "model.pt")
    else:
        write_checkpoint(Path("model.pt"), old, *flags)
    for file, text in (("vectors", "x 1 2\n"), ("pieces", "x a b\n"), ("wrong", "x a z\n"), ("words", "y a\nx\n")):
        Path(file).write_text(text)
    dictionary = [f"{new}/dict.txt"] if options[:1] != ["gone"] else []
    err = cli("extend", "model.pt", "out.pt", "--dictionary", *dictionary, *options, status=2).err
    assert re.search(message, err), err
