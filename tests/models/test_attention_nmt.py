"""DL4MT and its LSTM form: equations, sizes, sharing, decoding, and what is refused."""

import logging
from pathlib import Path

import numpy as np
import pytest
import torch
from fairseq.models import ARCH_MODEL_REGISTRY

from .. import reference
from .attention_nmts import WORDS, build
from .common import PREVIOUS, SOURCE, TARGET, Sized, count, grown, write_vectors

PRESETS = {"dl4mt": "none", "dl4mt_wt": "decoder", "dl4mt_twwt": "all"}


@pytest.mark.parametrize("cell", ["gru", "lstm"])
@pytest.mark.parametrize("layers", [1, 3])
@pytest.mark.parametrize("preset", ["dl4mt", "dl4mt_twwt"])
def test_scores_are_those_of_the_equations(preset: str, cell: str, layers: int) -> None:
    model = grown(build(preset, cell=cell, encoder_layers=layers, decoder_layers=layers)).double().eval()
    weights = {name: value.numpy() for name, value in model.state_dict().items()}
    scores, extra = model(SOURCE, None, PREVIOUS)
    for row, (source, previous) in enumerate(zip(SOURCE.tolist(), PREVIOUS.tolist(), strict=True)):
        words = [word for word in source if word != WORDS.pad()]
        length = sum(word != WORDS.pad() for word in previous)
        expected, attention = reference.translate_scores(
            words, previous[:length], weights, cell=cell, encoder_layers=layers, decoder_layers=layers
        )
        np.testing.assert_allclose(scores[row, :length].detach(), expected, rtol=1e-9)
        found = extra["attn"][0][row, :length].detach()
        np.testing.assert_allclose(found[:, SOURCE[row].ne(WORDS.pad())], attention, rtol=1e-9)
        assert found[:, SOURCE[row].eq(WORDS.pad())].abs().sum() == 0


@pytest.mark.parametrize(
    ("preset", "source_size", "target_size", "millions"),
    [  # English-French, then English-German, whose joint dictionary has the same size
        ("dl4mt", 87_000, 92_000, 167.9),
        ("dl4mt_wt", 87_000, 92_000, 121.9),
        ("dl4mt_twwt", 94_000, 94_000, 79.4),
        ("dl4mt", 83_000, 91_000, 164.9),
        ("dl4mt_wt", 83_000, 91_000, 119.4),
    ],
)
def test_sizes_of_the_papers_table_8(preset: str, source_size: int, target_size: int, millions: float) -> None:
    defaults = getattr(ARCH_MODEL_REGISTRY[preset], "__dataclass")()
    sizes = {name: getattr(defaults, name) for name in vars(defaults) if name.endswith(("_dim", "_size"))}
    with torch.device("meta"):
        model = build(preset, source=Sized(source_size), target=Sized(target_size), **sizes)
    assert round(count(model) / 1e6, 1) == millions
    width, hidden = defaults.encoder_embed_dim, defaults.encoder_hidden_size
    assert count(model) == reference.dl4mt_parameters(
        width, hidden, source=source_size, target=target_size, sharing=PRESETS[preset]
    )


def test_initial_weights_are_dl4mts() -> None:
    model = build("dl4mt", encoder_embed_dim=400, decoder_embed_dim=400, decoder_out_embed_dim=400)
    for name, weight in model.named_parameters():
        if name.endswith(("bias", "bias_input", "bias_hidden2")):
            assert not weight.any(), name
    table = model.decoder.output.weight[4:]
    assert table.std().item() == pytest.approx(0.01, rel=0.1)
    keys = model.encoder.keys.weight  # 2d x 2d, square, hence orthogonal
    torch.testing.assert_close(keys @ keys.t(), torch.eye(10), rtol=1e-5, atol=1e-5)
    assert model.decoder.readout_input.weight.std().item() == pytest.approx(0.01, rel=0.1)  # square, yet Gaussian


def test_initial_embeddings_of_the_lstm_form_are_those_of_fairseqs_lstm() -> None:
    model = build("lstm_nmt", encoder_embed_dim=400, decoder_embed_dim=400, decoder_out_embed_dim=400)
    assert model.decoder.output.weight[4:].std().item() == pytest.approx(0.1 / 3**0.5, rel=0.1)


@pytest.mark.parametrize("cell", ["gru", "lstm"])
@pytest.mark.parametrize("layers", [1, 2])
def test_incremental_scores_are_those_of_the_whole(cell: str, layers: int) -> None:
    model = grown(build("lstm_nmt_wt", cell=cell, decoder_layers=layers)).double().eval()
    with torch.no_grad():
        encoder_out = model.encoder(SOURCE)
        expected, extra = model.decoder(PREVIOUS, encoder_out)
        state: dict = {}
        for t in range(PREVIOUS.size(1)):
            scores, step = model.decoder(PREVIOUS[:, : t + 1], encoder_out, incremental_state=state)
            torch.testing.assert_close(scores[:, 0], expected[:, t])
            torch.testing.assert_close(step["attn"][0][:, 0], extra["attn"][0][:, t])


def test_reordering_shares_a_sentences_encoding_between_its_beams() -> None:
    encoder = grown(build("lstm_nmt")).eval().encoder
    with torch.no_grad():
        out = encoder(SOURCE)
        beams = encoder.reorder_encoder_out(out, torch.tensor([0, 0, 1, 1, 2, 2]))
        moved = encoder.reorder_encoder_out(beams, torch.tensor([1, 0, 2, 2, 5, 4]))
        left = encoder.reorder_encoder_out(moved, torch.tensor([1, 0, 4, 5]))
        uneven = encoder.reorder_encoder_out(moved, torch.tensor([0, 2, 3]))
    assert beams["source"].annotations_nSC is moved["source"].annotations_nSC is out["source"].annotations_nSC
    assert [each["beams"] for each in (out | {"beams": 1}, beams, moved, left, uneven)] == [1, 2, 2, 2, 1]
    torch.testing.assert_close(left["source"].keys_nSA, out["source"].keys_nSA[[0, 2]])
    torch.testing.assert_close(uneven["source"].keys_nSA, out["source"].keys_nSA[[0, 1, 1]])


def test_reordering_with_gradients_has_one_row_a_sentence() -> None:
    encoder = grown(build("lstm_nmt")).encoder
    out = encoder.reorder_encoder_out(encoder(SOURCE), torch.tensor([0, 0, 1, 1, 2, 2]))
    assert out["beams"] == 1
    assert len(out["source"].annotations_nSC) == 6


def test_the_longest_and_shortest_sentences_work() -> None:
    model = grown(build("dl4mt")).eval()
    scores, _ = model(torch.tensor([[2]]), None, torch.tensor([[2]]))
    assert scores.isfinite().all()


def test_dropout_places_default_to_dropout() -> None:
    model = build("lstm_nmt", dropout=0.5, encoder_dropout_in=0.0, decoder_dropout_out=0.25)
    places = [model.encoder.dropout_in, model.encoder.dropout_out, model.decoder.dropout_in, model.decoder.dropout_out]
    assert [place.p for place in places] == [0.0, 0.5, 0.5, 0.25]


def test_pretrained_and_frozen_embeddings(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = write_vectors(tmp_path / "vectors.txt", 6)
    paths = {"encoder_embed_path": path, "decoder_embed_path": path}
    with caplog.at_level(logging.INFO):
        model = build("lstm_nmt", **paths, encoder_freeze_embed=True, decoder_freeze_embed=True)
    assert "encoder input (frozen) 102" in caplog.messages[-1]
    for table in (model.encoder.embed_tokens, model.decoder.embed_tokens):
        assert table.weight[WORDS.index("word0")].eq(0.5).all()
        assert not table.weight[WORDS.index("word1")].eq(0.5).any()
        assert not table.weight.requires_grad
    assert model.decoder.output.weight.requires_grad
    model(SOURCE, None, PREVIOUS, target=TARGET).loss.backward()


def test_a_target_padded_on_the_left_is_refused() -> None:
    with pytest.raises(ValueError, match="--left-pad-target: needs False.* got True"):
        build("lstm_nmt_twwt", left_pad_target=True)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("word0 1 2 3 4\n", "needs vectors of width 6, the table's; got 4 in '.*vectors.txt'"),
        (None, "needs a text file of word vectors; got '.*vectors.txt'"),
        ("Word0 1 2 3 4 5 6\n", "needs words of the dictionary; got '.*vectors.txt', which has none of its 1. words"),
    ],
)
def test_vectors_that_do_not_fit_are_refused(tmp_path: Path, text: str | None, message: str) -> None:
    path = tmp_path / "vectors.txt"
    if text is not None:
        path.write_text(text)
    for side in ("encoder", "decoder"):
        with pytest.raises(ValueError, match=f"--{side}-embed-path: {message}"):
            build("lstm_nmt", **{f"{side}_embed_path": str(path)})


def test_an_empty_source_sentence_harms_nobody() -> None:
    model = grown(build("lstm_nmt"))
    empty = torch.cat((SOURCE, torch.full((1, 5), WORDS.pad())))
    previous, target = torch.cat((PREVIOUS, PREVIOUS[:1])), torch.cat((TARGET, TARGET[:1]))
    scores, _ = model(empty, None, previous)
    torch.testing.assert_close(scores[:3], model(SOURCE, None, PREVIOUS)[0])
    model(empty, None, previous, target=target).loss.backward()
    assert all(parameter.grad.isfinite().all() for parameter in model.parameters())


def test_decoding_step_by_step_leaves_the_encoding_fit_for_training() -> None:
    model = grown(build("lstm_nmt"))
    out = model.encoder(SOURCE)
    with torch.no_grad():
        model.decoder(PREVIOUS[:, :1], out, incremental_state={})
    model.decoder(PREVIOUS, out)[0].sum().backward()
    assert model.encoder.keys.weight.grad.abs().sum() > 0
