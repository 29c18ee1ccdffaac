"""`updates`: rows that batches update, repeat probabilities, and gradients by role, each against its definition."""

import shutil
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from fairseq.models.fconv import FConvDecoder
from fairseq.models.fconv_lm import FConvLanguageModel
from torch import Tensor, nn

from fairseq_tiedemb.analysis.updates import describe_gradients, input_updates, repeats, role_gradients
from fairseq_tiedemb.cli._stream import _check_index
from fairseq_tiedemb.sharing import SHARING_METHODS

from .. import reference
from ..conftest import Cli
from ..models import recurrent_lms
from ..models.common import dictionary, grown
from ..models.families import BANDS, build
from ..untrained import write_checkpoint
from ..vectors import common

PAD, WORDS = 1, 20


def command(*args: object) -> int:
    return common.command("updates", *args)


# --- how often --------------------------------------------------------------------------------------------------------


def test_updates_of_an_epoch() -> None:
    rng = np.random.default_rng(1)
    batches = [rng.integers(0, 30, (3, 4)) * rng.integers(0, 2, (3, 4)) for _ in range(15)]
    found = input_updates(batches, 30, not_words=(0, 1))
    every = Counter(int(word) for batch in batches for word in batch.ravel())
    assert found.counts_V.tolist() == [every[word] for word in range(2, 30)]
    assert found.updates_V.tolist() == [sum(word in batch for batch in batches) for word in range(2, 30)]
    assert found.rows_of_batches.tolist() == [len(set(batch.ravel().tolist()) - {0, 1}) for batch in batches]
    assert found.updates_V.sum() == found.rows_of_batches.sum()
    assert (found.updates_V <= found.counts_V).all()


def test_what_is_printed() -> None:
    batches = [np.array([2, 3, 3, 3]), *[np.array([2, 2, 2, 4])] * 11]
    lines = input_updates(batches, 13, not_words=(0, 1)).describe()
    assert lines[0] == "an epoch: 48 tokens in 12 batches"
    assert lines[1] == "input: a batch updates 2 different rows of 11 (18.2%), 2 to 2"
    assert "an epoch updates 3 rows; 81.8% of all are updated 10 times or less, 81.8% are of words" in lines[2]
    assert lines[3] == "output, by full softmax: each batch updates all 11 rows, 12 times an epoch"
    assert [line.split() for line in lines[-2:]] == [["1-10", "2.4", "20.00%"], ["11-11", "0.0", "0.00%"]]


# --- repeats ----------------------------------------------------------------------------------------------------------


class Given(nn.Module):
    """A language model whose probabilities are given."""

    def __init__(self, probabilities_BTV: Tensor):
        super().__init__()
        self.probabilities = probabilities_BTV

    def forward(self, src_tokens: Tensor, src_lengths: Tensor) -> Tensor:
        return self.probabilities

    def get_normalized_probs(self, output: Tensor, log_probs: bool, sample: Any) -> Tensor:
        return output.log()


def batch_of(source: Tensor, target: Tensor) -> dict[str, Any]:
    return {"net_input": {"src_tokens": source, "src_lengths": source.ne(PAD).sum(1)}, "target": target}


def test_only_what_follows_a_word_counts() -> None:
    words = dictionary(7)
    probabilities = torch.rand(2, 4, 7, dtype=torch.float64).softmax(2)
    source = torch.tensor([[2, 4, 4, 5], [0, 6, 1, 1]])
    target = torch.tensor([[4, 4, 5, 2], [6, 3, 1, 1]])
    found = repeats(Given(probabilities), [{}, batch_of(source, target)], words)
    expected = [probabilities[0, 1, 4], probabilities[0, 2, 4], probabilities[0, 3, 5], probabilities[1, 1, 6]]
    assert found.probabilities == pytest.approx([float(p) for p in expected], abs=1e-12)
    assert found.repeated == [4]
    known = f"mean {np.mean(expected):.4f}, median {np.median(expected):.1e}"
    assert found.describe(words) == [
        f"repeat probability p(w_t-1 | history): {known}, over 4 tokens that follow a word",
        "repeats in the text: 0.2500, 1 tokens (word0 1)",
    ]
    with pytest.raises(ValueError, match="--gen-subset: needs sentences of two words or more; got none"):
        repeats(Given(probabilities), [batch_of(source[:, :1], target[:, :1])], words)


@pytest.mark.parametrize("preset", ["zaremba_lm_small", "zaremba_lm_small_wt"])
def test_our_models_probabilities(preset: str) -> None:
    words = dictionary(WORDS)
    model = grown(recurrent_lms.build(preset, words=words)).double().eval()
    source = torch.tensor([[2, 5, 9, 9, 4]])
    found = repeats(model, [batch_of(source, torch.tensor([[5, 9, 9, 4, 2]]))], words)
    weights = {name: value.numpy() for name, value in model.state_dict().items()}
    scores = reference.language_model_scores(source[0].tolist(), weights, layers=2)
    expected = [reference.softmax(scores[t])[source[0, t]] for t in range(1, 5)]
    assert found.probabilities == pytest.approx(expected, abs=1e-12)
    assert found.repeated == [9]


# --- gradients by role ------------------------------------------------------------------------------------------------


def text() -> dict[str, Any]:
    source = torch.tensor([[2, 4, 5, 4], [2, 9, 8, 1]])
    return batch_of(source, torch.tensor([[4, 5, 4, 2], [9, 8, 2, 1]]))


def gradient(model: Any, weight: Tensor, batch: dict[str, Any]) -> Tensor:
    """Of the mean cross entropy, as training has it."""
    scores = model(**batch["net_input"])[0]
    target = batch["target"]
    loss = nn.functional.cross_entropy(scores.flatten(0, 1), target.flatten(), ignore_index=PAD)
    return torch.autograd.grad(loss, weight)[0]


def models(tied: bool, method: str) -> Iterator[Any]:
    yield recurrent_lms.build("zaremba_lm_small_wt" if tied else "zaremba_lm_small", sharing_method=method)
    yield build("transformer_lm", sharing_method=method, share_decoder_input_output_embed=tied)
    yield build("transformer_lm", ours=False, share_decoder_input_output_embed=tied)


@pytest.mark.parametrize("method", SHARING_METHODS)
def test_the_parts_of_a_tied_table_add_up(method: str) -> None:
    for model in models(True, method):
        model = grown(model, 0.3).double().eval()
        found = role_gradients(model, text(), pad=PAD)
        assert found.tied
        assert found.read.tolist() == [2, 4, 5, 8, 9]
        whole = gradient(model, model.decoder.embed_tokens.weight, text())
        torch.testing.assert_close(found.input_VD + found.output_VE, whole)
        others = [row for row in range(len(whole)) if row not in (2, 4, 5, 8, 9)]
        assert found.input_VD[others].abs().max() == 0
        assert found.output_VE[4:].abs().min() > 0
        assert not model.decoder.embed_tokens._forward_hooks
        assert found.input_VD[[4, 5]].abs().min() > 0


def test_the_parts_of_two_tables() -> None:
    for model in models(False, "plain"):
        model = grown(model, 0.3).double().eval()
        found = role_gradients(model, text(), pad=PAD)
        assert not found.tied
        own = hasattr(model, "output")
        output = model.output.tables()["words"] if own else model.decoder.output_projection
        torch.testing.assert_close(found.input_VD, gradient(model, model.decoder.embed_tokens.weight, text()))
        torch.testing.assert_close(found.output_VE, gradient(model, output.weight, text()))


def test_what_is_printed_of_gradients() -> None:
    model = grown(recurrent_lms.build("zaremba_lm_small_wt"), 0.3).double().eval()
    one = role_gradients(model, text(), pad=PAD)
    lines = describe_gradients([one, one])
    first, second = (part[one.read].norm(dim=1) for part in (one.input_VD, one.output_VE))
    both = (one.input_VD + one.output_VE)[one.read].norm(dim=1)
    assert lines[0] == "gradients of 2 batches, tied: 5 rows read in each"
    assert lines[2].split()[2:] == [f"{first.mean():.2e}", "0", f"{one.input_VD.norm():.2e}"]
    others = [row for row in range(len(one.output_VE)) if row not in one.read.tolist()]
    cells = [second.mean(), one.output_VE[others].norm(dim=1).mean(), one.output_VE.norm()]
    assert lines[3].split()[2:] == [f"{cell:.2e}" for cell in cells]
    assert lines[4].endswith(f"= {(first / (first + second)).mean():.3f} on average")
    assert f"|sum| = {(first / both).mean():.3f}, |output's part| / |sum| = {(second / both).mean():.3f}" in lines[5]
    untied = role_gradients(grown(recurrent_lms.build("zaremba_lm_small")).eval(), text(), pad=PAD)
    assert describe_gradients([untied])[0].startswith("gradients of 1 batches, untied")
    assert len(describe_gradients([untied])) == 5


def test_models_without_a_row_for_each_word_are_refused() -> None:
    adaptive = build("transformer_lm", **BANDS)
    bare, tree, short = (build("transformer_lm", ours=False) for _ in "123")
    bare.decoder = nn.Module()
    of_characters = build("transformer_lm", character_embeddings=True)
    convolutional = FConvLanguageModel(FConvDecoder(dictionary(WORDS), 8, attention=False))
    fewer = build("transformer_lm", ours=False)  # of --output-dictionary-size
    fewer.decoder.output_projection = nn.Linear(fewer.decoder.output_embed_dim, 5, bias=False)
    tree.output = SimpleNamespace(tables=dict)
    short.output = SimpleNamespace(tables=lambda: {"words": nn.Embedding(5, 4)})
    for model, message in (
        (adaptive, r"a model with one table .* got \w+ with adaptive tables"),
        (bare, r"a model with one table .* got \w+ with none"),
        (of_characters, r"a model with one table .* got \w+ with none"),
        (convolutional, "a model with one table .* got FConvLanguageModel with none"),
        (tree, "an output table with a row for each of .* with none"),
        (fewer, r"an output table with a row for each of .* with \(5, \d+\)"),
        (short, r"an output table with a row for each of .* with \(5, 4\)"),
    ):
        with pytest.raises(ValueError, match=f"CHECKPOINT: needs {message}"):
            role_gradients(model, text(), pad=PAD)


# --- the command ------------------------------------------------------------------------------------------------------

SIZES = ("--decoder-embed-dim", 8, "--decoder-hidden-size", 8)
STOCK = ("--arch", "lstm_lm", "--decoder-out-embed-dim", 8, "--share-decoder-input-output-embed")


def test_the_command(lm_data: Path, tmp_path: Path, cli: Cli) -> None:
    paths = [tmp_path / name for name in ("ours", "stock")]
    ours = ("--arch", "zaremba_lm_small")
    for path, flags in zip(paths, (ours, ("--task", "language_modeling", *STOCK)), strict=True):
        write_checkpoint(path, lm_data, *flags, *SIZES)
    shape = ("--batch-size", 6, "--tokens-per-sample", 5, "--batches", 3)
    printed = cli("updates", lm_data, "--checkpoint", *paths, *shape).out
    assert printed.count("gradients of 3 batches, untied") == printed.count("gradients of 3 batches, tied") == 1
    words, test = (
        [line.split() for line in (lm_data.parent / f"text/{split}.src").read_text().splitlines()]
        for split in ("train", "test")
    )
    assert printed.startswith(f"an epoch: {sum(len(each) + 1 for each in words)} tokens in ")
    follow = sum(map(len, test))
    repeated = sum(a == b for each in test for a, b in zip(each, each[1:], strict=False))
    assert printed.count(f"over {follow:,} tokens that follow a word") == 2
    assert printed.count(f"repeats in the text: {repeated / follow:.4f}, {repeated:,} tokens") == 2


def test_no_text_is_longer_than_the_positions_of_a_model(
    lm_data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sizes = ("--decoder-embed-dim", 8, "--decoder-ffn-embed-dim", 8, "--decoder-attention-heads", 1)
    positions = ("--decoder-learned-pos", "--tokens-per-sample", 6, "--sample-break-mode", "eos")
    flags = ("--task", "language_modeling", "--arch", "transformer_lm", "--decoder-layers", 1, *sizes, *positions)
    write_checkpoint(tmp_path / "model.pt", lm_data, *flags)
    given = (lm_data, "--checkpoint", tmp_path / "model.pt")
    with pytest.raises(ValueError, match=r"--tokens-per-sample: needs at most 6, .*model.pt; got 7. Use fewer"):
        command(*given, "--tokens-per-sample", 7)
    command(*given, "--tokens-per-sample", 6)
    test = [line.split() for line in (lm_data.parent / "text/test.src").read_text().splitlines()]
    lengths = [len(words) for words in test]
    assert max(lengths) >= 6 > min(lengths)
    follow = sum(length for length in lengths if length < 6)
    assert f"over {follow:,} tokens that follow a word" in capsys.readouterr().out


def test_refusals(lm_data: Path, parallel_data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "model.pt").touch()
    for arguments, message in (
        ((parallel_data,), "DATA: needs a file; got .*dict.txt, which is none"),
        ((lm_data, "--checkpoint", "nothing.pt"), "--checkpoint: needs a file; got nothing.pt"),
        ((lm_data, "--train-subset", "none"), "--train-subset: needs a text of .*; got .*/none, without"),
        ((lm_data, "--gen-subset", "test"), "--gen-subset: needs --checkpoint, .*; got test. Leave it out"),
        ((lm_data, "--batches", 20), "--batches: needs --checkpoint, .*; got 20. Leave it out"),
        ((lm_data, "--checkpoint", tmp_path / "model.pt", "--gen-subset", "none"), "--gen-subset: .* got .*/none, w"),
    ):
        with pytest.raises(ValueError, match=message):
            command(*arguments)
    assert capsys.readouterr().out == ""


def test_broken_data_is_named(lm_data: Path, tmp_path: Path, capfd: pytest.CaptureFixture) -> None:
    data = shutil.copytree(lm_data, tmp_path / "data")
    index = data / "train.idx"
    whole = index.read_bytes()
    for size, needed in ((0, 26), (5, 26), (20, len(whole)), (100, len(whole))):
        index.write_bytes(whole[:size])
        with pytest.raises(ValueError, match=f"{index}: needs to be as .*; got {size} bytes, of {needed:,} by its he"):
            command(data)
    index.write_bytes(bytes(3000))  # as after a crash
    with pytest.raises(ValueError, match=f"{index}: needs to be as .*; got 3,000 bytes, of 26 by its header"):
        command(data)
    for place, value in ((9, 9), (17, 0), (17, 99)):  # the version, and the type of the numbers
        index.write_bytes(whole[:place] + bytes([value]) + whole[place + 1 :])
        with pytest.raises(ValueError, match=f"{index}: needs to be as fairseq-preprocess wrote it; got"):
            command(data)
    assert "Traceback" not in capfd.readouterr().err
    index.write_bytes(b"TNTIDX\0\0" + b"\xff" * 40)
    _check_index(index)  # of another of fairseq's formats nothing is said
    for line, cause in (
        (b"foo bar baz", 'Incorrect dictionary format, .*"foo bar'),
        (b"a 1\na 1", "Duplicate word found .*'a'"),
        (b"\xe9 1", "Incorrect encoding"),
    ):
        (data / "dict.txt").write_bytes(line + b"\n")
        with pytest.raises(ValueError, match=f"DATA: needs the dictionary .*; got {data}/dict.txt .{cause}.*Use the"):
            command(data)
