"""The state that language models carry along a stream: exact, in order, kept no longer than it may be needed."""

from typing import Any

import pytest
import torch

from fairseq_tiedemb.models._stream_lm import StreamLM

from .common import grown
from .recurrent_lms import WORDS, build, chunks, text

TIED = {"share_decoder_input_output_embed": True}
PROJECTED = {"projection": True, "projection_bias": True}
every_stream = pytest.mark.parametrize("preset", ["tied_lstm_lm", "feedforward_lm"])


def features(model: StreamLM, tokens: torch.Tensor, position: int | None = None) -> torch.Tensor:
    return model.decoder.extract_features(tokens, stream_position=position)[0]


STREAMS = {"projected": PROJECTED, **{f"{n}-grams": {"preset": "feedforward_lm", "ngram_order": n} for n in (2, 5)}}


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("length", [1, 2, 11, 12, 40])
@pytest.mark.parametrize("options", STREAMS.values(), ids=STREAMS)
def test_a_stream_in_chunks_is_the_stream_in_one(options: dict[str, Any], length: int, training: bool) -> None:
    model = grown(build(**options)).double().train(training)
    tokens = text(3, 12)
    expected = features(model, tokens)
    for _ in range(2):  # the second time from zero again, as in the next epoch or split
        found = torch.cat([features(model, piece, start) for start, piece in chunks(tokens, length)], 1)
        torch.testing.assert_close(found, expected, rtol=0, atol=1e-12)
    assert model.state_dict().keys() == build(**options).state_dict().keys(), "the state is no part of the model"


def test_without_a_position_nothing_is_carried() -> None:
    model = grown(build()).eval()
    first = features(model, text(3, 5))
    assert torch.equal(features(model, text(3, 5)), first)
    assert model.decoder.streams[False].states == {}


@every_stream
def test_evaluation_in_mid_epoch_leaves_training_alone(preset: str) -> None:
    model = grown(build(preset)).double()
    tokens = text(3, 12)
    expected = features(model, tokens)[:, 5:]
    features(model, tokens[:, :5], 0)
    model.eval()
    for start, piece in chunks(text(7, 12, seed=2), 4):
        features(model, piece, start)
    model.train()
    torch.testing.assert_close(features(model, tokens[:, 5:], 5), expected)


@every_stream
@pytest.mark.parametrize("training", [False, True])
def test_a_batch_out_of_order_is_refused(preset: str, training: bool) -> None:
    model = build(preset).train(training)
    with pytest.raises(ValueError, match="got position 5"):
        features(model, text(3, 5), 5)
    features(model, text(3, 5), 0)
    with pytest.raises(ValueError, match="needs the batch at position 5, .* got position 10.* --task contiguous_lm"):
        features(model, text(3, 5), 10)


@every_stream
def test_another_number_of_rows_is_refused(preset: str) -> None:
    model = build(preset)
    features(model, text(3, 5), 0)
    with pytest.raises(ValueError, match="--batch-size: needs the 3 rows of the previous batch; got 4. Use the same"):
        features(model, text(4, 5), 5)


@every_stream
def test_a_batch_may_come_again_in_its_update_only(preset: str) -> None:
    """Automatic mixed precision feeds the batches of an update again when their gradients overflow."""
    model = grown(build(preset)).double()
    pieces = dict(chunks(text(3, 15), 5))
    model.set_num_updates(0)
    first = [features(model, pieces[start], start) for start in (0, 5)]  # an update of two batches
    model.set_num_updates(0)
    again = [features(model, pieces[start], start) for start in (0, 5)]
    assert all(map(torch.equal, first, again))
    model.set_num_updates(1)
    with pytest.raises(ValueError, match="position 10, .* got position 5"):
        features(model, pieces[5], 5)
    features(model, pieces[10], 10)
    assert set(model.decoder.streams[True].states) == {10, 15}


@every_stream
def test_where_updates_are_not_counted_few_states_are_kept(preset: str) -> None:
    model = grown(build(preset))
    tokens = text(2, 200)
    for start, piece in chunks(tokens, 2):
        found = features(model, piece, start)
        assert len(model.decoder.streams[True].states) <= 2
    assert torch.equal(features(model, piece, start), found)  # the last batch again
    for start, piece in chunks(tokens[:, :4], 2):  # from the start again
        features(model, piece, start)
    assert set(model.decoder.streams[True].states) == {2, 4}


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("options", [{}, {"dropout": 0.5}, {"preset": "highway_lm"}, {"dropout_states": 0.5}])
def test_under_autocast_the_state_is_carried_in_float32(options: dict[str, Any], training: bool) -> None:
    model = grown(build(**options)).train(training)
    tokens = text(3, 12)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        for start, piece in chunks(tokens, 4):
            found = features(model, piece, start)
    stream = model.decoder.streams[training]
    assert stream.states[stream.position].dtype == torch.float32
    if not training:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            assert torch.equal(features(model, tokens)[:, 8:], found)


def test_evaluation_keeps_one_state() -> None:
    model = build().eval()
    for start, piece in chunks(text(1, 40), 2):
        features(model, piece, start)
    assert set(model.decoder.streams[False].states) == {40}


def test_no_gradient_passes_from_batch_to_batch() -> None:
    model = grown(build())
    features(model, text(3, 5), 0)
    position, state = model.carried_state()
    assert (position, state.shape) == (5, (2, 3, 12))
    assert not state.requires_grad
    features(model, text(3, 5), 5).sum().backward()


@every_stream
def test_a_restored_state_goes_on_where_it_stood(preset: str) -> None:
    model, other = (grown(build(preset)).double() for _ in range(2))
    other.load_state_dict(model.state_dict())
    tokens = text(3, 12)
    expected = features(model, tokens)[:, 5:]
    features(model, tokens[:, :5], 0)
    other.restore_state(*model.carried_state())
    other.set_num_updates(7)
    torch.testing.assert_close(features(other, tokens[:, 5:], 5), expected)


def test_a_state_follows_the_models_precision() -> None:
    model = build().eval()
    features(model, text(3, 5), 0)
    model.double()
    assert features(model, text(3, 5), 5).dtype == torch.float64


@every_stream
def test_a_batch_of_padding_alone_is_worth_nothing(preset: str) -> None:
    """As in the last step of a process whose rows have ended."""
    model = grown(build(preset, **TIED))
    pad = torch.full((2, 1), WORDS.pad())
    loss = model(pad, target=pad, stream_position=0).loss
    loss.backward()
    assert loss == 0
    assert all(not parameter.grad.any() for parameter in model.parameters())
