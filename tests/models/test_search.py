"""Beam search of our Transformers on a CPU: the hypotheses, scores and attention of fairseq's model, by other steps."""

import copy
import pickle
import threading
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from fairseq.search import BeamSearch, DiverseBeamSearch, LexicallyConstrainedBeamSearch, Sampling
from fairseq.sequence_generator import SequenceGenerator, SequenceGeneratorWithAlignment

from fairseq_tiedemb.models import _search
from fairseq_tiedemb.products import packed
from fairseq_tiedemb.training import best_words

from .common import PAD, grown
from .families import ALL, WORDS, build

OPTIONS: dict[str, dict[str, Any]] = {
    "post-norm": ALL,
    "pre-norm": {**ALL, "decoder_normalize_before": True, "encoder_normalize_before": True},
    "layer-norm": {**ALL, "layernorm_embedding": True, "decoder_learned_pos": True, "activation_fn": "gelu"},
    "no-positions": {"no_token_positional_embeddings": True, "decoder_embed_dim": 32},
}
UNUSUAL: dict[str, dict[str, Any]] = {
    "quant-noise": {"quant_noise_pq": 0.1},
    "cross": {"cross_self_attention": True},
    "heads": {"scale_heads": True},
    "norm": {"scale_attn": True},
    "output": {"decoder_output_dim": 8},
    "no-source": {"no_cross_attention": True},
    "no-layers": {"decoder_layers": 0},
}
SOURCE = torch.randint(4, len(WORDS), (6, 7), generator=torch.Generator().manual_seed(1))
for row, pads in enumerate((0, 3, 1, 5, 0, 2)):
    SOURCE[row, :pads] = PAD
FOUR_BEAMS = SimpleNamespace(generation=SimpleNamespace(beam=4))
SAMPLE = {"net_input": {"src_tokens": SOURCE, "src_lengths": SOURCE.ne(PAD).sum(1)}}


def pair(options: dict[str, Any], *, seed: int = 1) -> list[Any]:
    """fairseq's model and ours, with the same weights, ready to decode."""
    theirs = grown(build("transformer", ours=False, seed=seed, **options), 0.5).eval()
    ours = build("transformer", **options).eval()
    ours.load_state_dict(copy.deepcopy(theirs.state_dict()))
    return [theirs, ours]


class Leaving(BeamSearch):
    """A search whose sentences end one after the other, whatever an untrained model would like."""

    def step(self, step: int, lprobs: Any, scores: Any, prev: Any = None, original_batch_idxs: Any = None) -> Any:
        ends = step > 2 + 3 * original_batch_idxs
        lprobs[:, :, WORDS.eos()] = torch.where(ends, -0.01, -50.0).unsqueeze(1)
        return super().step(step, lprobs, scores, prev, original_batch_idxs)


def search(
    *models: Any, sample: Any = SAMPLE, prefix: Any = None, generator_of: Any = SequenceGenerator, **options: Any
) -> list[list[dict[str, Any]]]:
    torch.manual_seed(3)
    generator = generator_of(
        list(models), WORDS, **{"beam_size": 4, "max_len_b": 24, "no_repeat_ngram_size": 2, **options}
    )
    return generator.generate(list(models), sample, prefix_tokens=prefix)


def assert_same(found: Any, expected: Any) -> None:
    assert len(found) == len(expected)
    for ours, theirs in zip(sum(found, []), sum(expected, []), strict=True):
        assert torch.equal(ours["tokens"], theirs["tokens"])
        for name in ("score", "positional_scores", "attention"):
            torch.testing.assert_close(ours[name], theirs[name], rtol=1e-4, atol=1e-5)


@pytest.fixture(autouse=True)
def took_our_steps(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The searches that ours has begun; None for each of fairseq's."""
    begun: list[Any] = []
    begin = _search.begin
    monkeypatch.setattr(_search, "begin", lambda *args: begun.append(begin(*args)) or begun[-1])
    return begun


@pytest.mark.parametrize("beams", [1, 2, 5])
@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
def test_hypotheses_are_fairseqs(options: dict[str, Any], beams: int, took_our_steps: list[Any]) -> None:
    theirs, ours = pair(options)
    expected = search(theirs, beam_size=beams, search_strategy=Leaving(WORDS))
    assert_same(search(ours, beam_size=beams, search_strategy=Leaving(WORDS)), expected)
    assert None not in took_our_steps
    assert len({len(best[0]["tokens"]) for best in expected}) > 1, "sentences leave one by one"
    ours.prepare_for_inference_(FOUR_BEAMS)
    assert_same(search(ours, beam_size=beams, search_strategy=Leaving(WORDS)), expected)


def test_of_long_hypotheses_sampled_prefixed_and_of_two_models() -> None:
    theirs, ours = pair(ALL)
    more_theirs, more_ours = pair(ALL, seed=2)
    prefix = torch.randint(4, len(WORDS), (6, 3), generator=torch.Generator().manual_seed(2))
    prefix[1, 1:] = prefix[3, 2:] = PAD
    for options in (
        {"max_len_b": 28, "min_len": 28},  # keys that no beam attends to are left
        {"prefix": prefix},
        {"search_strategy": Sampling(WORDS, sampling_topk=5)},
        {"no_repeat_ngram_size": 0, "temperature": 1.5},
    ):
        assert_same(search(ours, **options), search(theirs, **options))
    assert_same(search(ours, more_ours), search(theirs, more_theirs))


def steps(model: Any, orders: list[list[int]], tokens: torch.Tensor) -> list[torch.Tensor]:
    """Scores of each word of rows that change places between words."""
    state: dict = {}
    with torch.no_grad():
        encoded = model.encoder(SOURCE, SAMPLE["net_input"]["src_lengths"])
        found = []
        for last, order in enumerate(orders, 1):
            rows = torch.tensor(order)
            encoded = model.encoder.reorder_encoder_out(encoded, rows)
            if state:
                model.decoder.reorder_incremental_state_scripting(state, rows)
            tokens = tokens[rows]
            found.append(model.decoder(tokens[:, :last], encoder_out=encoded, incremental_state=state)[0][:, -1])
    return found


@pytest.mark.parametrize(
    "orders",
    [
        [[0, 0, 1, 1, 2, 2], [1, 0, 3, 3, 4, 4], [0, 0, 3, 2, 4, 5]],
        [[0, 0, 1, 1, 2, 2], [1, 0, 3, 3, 4, 4], [4, 5, 1, 1], [3, 0, 1], [2, 2, 0, 1]],  # beams of several sentences
        [[0, 0, 1, 1, 2, 2], [0, 1, 2, 3, 4, 5], [1, 3, 4, 4], [0, 1, 2, 3]],
        [[0, 1, 1, 2], [0, 1, 2, 3], [3, 3, 0]],
        [[0, 0, 1, 2], [1, 0, 2, 3]],
        [[0, 0, 0, 1], [1, 0, 2, 3]],
    ],
)
@pytest.mark.parametrize("pads", [False, True])
def test_rows_may_change_places_in_any_way(orders: list[list[int]], pads: bool) -> None:
    tokens = torch.randint(4, len(WORDS), (6, 5), generator=torch.Generator().manual_seed(4))
    if pads:
        tokens[0, 1] = tokens[1, 2] = PAD
    theirs, ours = pair(ALL)
    for found, expected in zip(steps(ours, orders, tokens), steps(theirs, orders, tokens), strict=True):
        torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("options", UNUSUAL.values(), ids=UNUSUAL)
def test_unusual_parts_are_fairseqs_bit_for_bit(options: dict[str, Any], took_our_steps: list[Any]) -> None:
    theirs, ours = pair({**options, "share_decoder_input_output_embed": "decoder_output_dim" not in options})
    found, expected = search(ours), search(theirs)
    assert took_our_steps == [None]
    assert [each["score"] for each in sum(found, [])] == [each["score"] for each in sum(expected, [])]


def test_dropout_gradients_and_an_alignment_take_fairseqs_steps(took_our_steps: list[Any]) -> None:
    _, ours = pair(ALL)
    encoded = ours.encoder(SOURCE, SAMPLE["net_input"]["src_lengths"])
    tokens = torch.full((6, 1), WORDS.eos())
    ours.decoder(tokens, encoder_out=encoded, incremental_state={})[0].sum().backward()
    with torch.no_grad():
        ours.decoder(tokens, encoder_out=encoded, incremental_state={}, alignment_heads=1)
        ours.decoder(tokens, encoder_out=encoded, incremental_state={}, alignment_layer=0)
        ours.decoder(tokens, encoder_out={**encoded, "encoder_padding_mask": []}, incremental_state={})
        ours.train().decoder(tokens, encoder_out=encoded, incremental_state={})
        ours.eval().decoder.layers[1].dropout_module.apply_during_inference = True  # --retain-dropout
        ours.decoder(tokens, encoder_out=encoded, incremental_state={})
        ours.decoder.layers[1].dropout_module.apply_during_inference = False
        ours.decoder.dropout_module.apply_during_inference = True  # --retain-dropout-modules TransformerDecoder
        ours.decoder(tokens, encoder_out=encoded, incremental_state={})
        ours.decoder.dropout_module.apply_during_inference = False
        with torch.autocast("cpu", torch.bfloat16):
            ours.decoder(tokens, encoder_out=encoded, incremental_state={})
        hook = ours.decoder.layers[0].fc1.register_forward_hook(lambda *_: None)
        ours.decoder(tokens, encoder_out=encoded, incremental_state={})
        hook.remove()
        ours.decoder.layers[0].fc1.__class__ = type("Adapted", (torch.nn.Linear,), {})
        ours.decoder(tokens, encoder_out=encoded, incremental_state={})
    assert took_our_steps == [None] * 10


def test_packed_weights_follow_the_weights() -> None:
    theirs, ours = pair(ALL)
    for part in (ours.decoder, ours.output.head):
        part.make_generation_fast_()
    search(ours)
    layers, table = ours.decoder.kept.last[1], ours.output.head.kept.last[1][2]
    assert table.is_mkldnn == packed(torch.ones(2, 2)).is_mkldnn
    search(ours)
    assert ours.decoder.kept.last[1] is layers, "from one search to the next"
    copied = copy.deepcopy(ours)
    for kept in (copied.decoder.kept, pickle.loads(pickle.dumps(ours.decoder.kept))):
        assert (kept.keeps, kept.last) == (True, (None, None))
    assert_same(search(copied), search(theirs))
    other = pair(ALL, seed=5)[0]
    ours.load_state_dict(copy.deepcopy(other.state_dict()))
    assert_same(search(ours), search(other))
    ours.train().eval()
    assert not ours.decoder.kept.keeps
    for parameter in (*ours.parameters(), *other.parameters()):
        parameter.data.mul_(0.9)  # as fairseq's optimisers write; torch does not count it
    assert_same(search(ours), search(other))


@pytest.mark.parametrize("size", [100, 128, 150, 640])
@pytest.mark.parametrize("beams", [1, 3])
def test_best_words_are_those_of_all_words(size: int, beams: int) -> None:
    generator = torch.Generator().manual_seed(size + beams)
    log_probs, scores = (torch.randn(shape, generator=generator) for shape in ((4, beams, size), (4, beams, 2)))
    log_probs[0, :, 3:] = log_probs[1, :, :-2] = -torch.inf  # few words are possible
    log_probs[2] = log_probs[2].round()  # many are equally good
    expected, words, rows = BeamSearch(WORDS).step(2, log_probs, scores)
    found, our_words, our_rows = best_words.best_words(BeamSearch(WORDS), 2, log_probs, scores)
    assert torch.equal(found, expected)
    assert torch.equal(our_words[3], words[3])
    assert torch.equal(our_rows[3], rows[3])
    sentences = torch.arange(4).unsqueeze(1)
    assert torch.equal(log_probs[sentences, our_rows, our_words] + scores[sentences, our_rows, 1], expected)
    assert all(len(row.unique()) == 2 * beams for row in our_rows * size + our_words)


def test_a_generator_looks_for_best_words_by_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    calls, original = [], best_words.best_words
    monkeypatch.setattr(best_words, "best_words", lambda *args: calls.append(args[1]) or original(*args))
    model, own = pair(ALL)[0], Leaving(WORDS)
    search(model, search_strategy=own)
    assert not calls
    beam = BeamSearch(WORDS)
    search(model, search_strategy=beam)
    assert calls == list(range(len(calls)))
    assert len(calls) > 1
    assert "step" not in vars(beam)


def test_threads_share_a_generator(monkeypatch: pytest.MonkeyPatch) -> None:
    """The second search begins while the first one runs, and ends after it."""
    model, first = pair(ALL)[0], threading.current_thread()
    generator = SequenceGenerator([model], WORDS, beam_size=4, max_len_b=6)
    expected = generator.generate([model], SAMPLE)
    began, joined, ended = threading.Event(), threading.Event(), threading.Event()
    encode = model.encoder.forward

    def meet(*args: Any, **kwargs: Any) -> Any:
        (began if threading.current_thread() is first else joined).set()
        joined.wait(0.3) if threading.current_thread() is first else ended.wait(5)
        return encode(*args, **kwargs)

    def second() -> Any:
        began.wait(5)
        return generator.generate([model], SAMPLE)

    monkeypatch.setattr(model.encoder, "forward", meet)
    with ThreadPoolExecutor(1) as threads:
        other = threads.submit(second)
        assert_same(generator.generate([model], SAMPLE), expected)
        ended.set()
        assert_same(other.result(), expected)
    assert "step" not in vars(generator.search)
    assert "forward_decoder" not in vars(generator.model)


def test_a_search_without_any_probability_is_refused() -> None:
    """Though NaN is not NaN, the names of a table have one in common."""
    model = pair(ALL)[0]
    model.load_state_dict({name: values * torch.nan for name, values in model.state_dict().items()})
    with pytest.raises(ValueError, match="--path: needs a model that gives some word .*; got nan for all words"):
        search(model)


GENERATORS = pytest.mark.parametrize("generator_of", [SequenceGenerator, SequenceGeneratorWithAlignment])


@GENERATORS
def test_a_diverse_search_takes_sentences_by_their_place_in_the_batch(generator_of: Any) -> None:
    model, found = pair(ALL)[0], []
    numbers, target = torch.arange(100, 100 + len(SOURCE)), torch.full((len(SOURCE), 3), WORDS.eos())
    sample = {"net_input": {**SAMPLE["net_input"], "prev_output_tokens": target}, "target": target}
    for each in (sample, {**sample, "id": numbers}):
        strategy = DiverseBeamSearch(WORDS, 2, 0.5)
        found.append(search(model, sample=each, search_strategy=strategy, generator_of=generator_of))
    assert_same(*found)


@GENERATORS
def test_a_search_with_constraints_needs_some(generator_of: Any) -> None:
    strategy = LexicallyConstrainedBeamSearch(WORDS, "ordered")
    with pytest.raises(ValueError, match="--constraints: needs sentences with constraints, .*; got data of "):
        search(pair(ALL)[0], search_strategy=strategy, generator_of=generator_of)


@pytest.mark.parametrize("spoilt", [5, len(WORDS) - 1, slice(4, 12), slice(4, None)], ids=str)
@pytest.mark.parametrize("step", [0, 3])
def test_a_word_whose_score_is_not_a_number_is_impossible(
    spoilt: Any, step: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(best_words, "BLOCK", 4)
    models = pair(ALL)[0], pair(ALL)[0]
    steps = [0, 0]
    for number, model in enumerate(models):

        def log_probs(*args: Any, number: int = number, original: Any = model.get_normalized_probs, **_: Any) -> Any:
            found = original(*args, log_probs=True)
            if steps[number] >= step:
                found[::2, :, spoilt] = torch.nan
            steps[number] += 1
            return found

        monkeypatch.setattr(model, "get_normalized_probs", log_probs)
    found = search(models[0])
    monkeypatch.setattr(SequenceGenerator, "generate", SequenceGenerator.generate.__wrapped__)  # type: ignore[attr-defined]
    assert_same(found, search(models[1]))
    assert steps[0] == steps[1] > step
