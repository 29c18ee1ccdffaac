"""Smoothing methods: the equations restated with dictionaries, sums to one, Katz's traps, weights of held-out text."""

import math

import numpy as np
import pytest

from fairseq_tiedemb.ngram import SMOOTHINGS, SmoothedModel, Vocabulary
from fairseq_tiedemb.ngram.counts import count_ngrams, look_up
from fairseq_tiedemb.ngram.jelinek_mercer import bucket, estimate_weights
from fairseq_tiedemb.ngram.smoothing import good_turing
from fairseq_tiedemb.ngram.text import BOS, EOS

from .oracle import Oracle
from .texts import distribution, histories, random_text, read_text

METHODS = [(name, form) for name, each in SMOOTHINGS.items() for form in each.forms]


def estimated(folder, text, order, name, form=None, **options):
    """A vocabulary, a model, and the same model restated."""
    vocabulary, tokens = read_text(folder, text)
    if name == "jelinek-mercer":
        _, options["held_out"] = read_text(folder, random_text(seed=99), vocabulary)
    model = SmoothedModel(tokens, order, vocabulary.size, smoothing=name, form=form, **options)
    weights = None
    if name == "jelinek-mercer":
        levels = count_ngrams(tokens, order, vocabulary.size, continuation=False)
        by_count = options.get("weights_by_count", True)
        found, _ = estimate_weights(levels, options["held_out"], vocabulary.size, by_count=by_count)
        weights = [lambda total, v=each: v[math.floor(math.log2(total)) if by_count else 0] for each in found]
    least = [*options.get("cutoff", SMOOTHINGS[name].cutoff)]
    least += least[-1:] * (order - len(least))
    oracle = Oracle(
        text,
        order,
        name,
        back_off=(form or SMOOTHINGS[name].forms[0]) == "back-off",
        cutoff=least,
        k=options.get("katz_k", 7),
        weights=weights,
    )
    return vocabulary, model, oracle


@pytest.mark.parametrize(("name", "form"), METHODS)
@pytest.mark.parametrize(("order", "cutoff"), [(1, (1,)), (2, (1,)), (3, (1, 1, 2)), (4, (1, 2, 2, 1)), (2, (4, 1))])
def test_probabilities_are_those_of_the_papers_and_sum_to_one(name, form, order, cutoff, tmp_path):
    """After histories that were seen, of which only a part was, and that were not."""
    text = random_text(seed=order, sentences=120)
    vocabulary, model, oracle = estimated(tmp_path, text, order, name, form, cutoff=cutoff, katz_k=4)
    for history in histories(text, order)[:: 1 + 5 * (order > 2)]:
        probs = distribution(model, vocabulary, history)
        assert math.fsum(probs.values()) == pytest.approx(1, abs=1e-12)
        assert probs == pytest.approx({word: oracle.probability(word, history) for word in probs}, rel=1e-9, abs=0)


@pytest.mark.parametrize(("name", "form"), METHODS)
def test_perplexity_of_a_text(name, form, tmp_path):
    text, other = random_text(seed=21, sentences=150), random_text(seed=22, sentences=30)
    vocabulary, model, oracle = estimated(tmp_path, text, 3, name, form)
    _, tokens = read_text(tmp_path, other, vocabulary)
    assert math.exp(-model.log_probabilities(tokens).mean()) == pytest.approx(oracle.perplexity(other, 3), rel=1e-9)
    assert model.title.endswith(", back-off") == (form != SMOOTHINGS[name].forms[0])


def test_keys_of_a_large_vocabulary_are_64_bits_wide():
    """numpy 1 multiplies 32-bit words by a number in 32 bits, too few for the square of 46,341."""
    size, words = 60_000, np.arange(59_000, 60_000, dtype=np.int32)
    tokens = np.concatenate(([BOS], words, [EOS], [BOS], words[:9], [EOS])).astype(np.int32)
    levels = count_ngrams(tokens, 2, size, continuation=False)
    found = [len(match.seen) for match in look_up([level.keys for level in levels], tokens, size)]
    assert found == [len(tokens) - 2]  # pairs of neighbours, but for those of two sentences


@pytest.mark.parametrize(("name", "form"), METHODS)
def test_words_that_the_text_lacks_have_a_share(name, form, tmp_path):
    (tmp_path / "dict.txt").write_text("a 1\nb 1\nnever 0\n")
    vocabulary = Vocabulary.from_dictionary(tmp_path / "dict.txt")
    _, tokens = read_text(tmp_path, "a a b\na\nb a\n", vocabulary)
    model = SmoothedModel(tokens, 2, vocabulary.size, smoothing=name, form=form, held_out=tokens)
    for history in ("a", "never"):
        probs = distribution(model, vocabulary, (history,))
        assert math.fsum(probs.values()) == pytest.approx(1, abs=1e-12)
        assert probs["never"] == pytest.approx(probs["<unk>"])
        assert probs["never"] > 0


# --- Katz ------------------------------------------------------------------------------------------------------------


def test_katz_ratios_by_hand():
    # a = 3 n_3 / n_1 = 1/2, d_1 = (2 n_2 / n_1 - 1/2) / (1/2), d_2 = (3 n_3 / (2 n_2) - 1/2) / (1/2)
    counts = np.repeat([1, 2, 3, 4], [24, 8, 4, 1])
    assert good_turing(counts, 2) == pytest.approx([1 / 3, 1 / 2])


@pytest.mark.parametrize(
    ("numbers", "k", "expected"),
    [
        ((0, 4, 2, 1), 2, [None, None]),  # n_1 = 0
        ((4, 4, 4, 1), 2, [None, None]),  # a = 3
        ((30, 14, 25, 0), 3, [14 * 2 / 30, None, None]),  # the start of PTB's unigrams: d_2 = 75 / 28; d_3 = 0
        ((8, 0, 1, 0), 1, [None]),  # n_2 = 0: nothing would be left
    ],
)
def test_katz_ratios_that_are_none(numbers, k, expected):
    found = good_turing(np.repeat([1, 2, 3, 4], numbers), k)
    assert [value if value is None else pytest.approx(value) for value in expected] == found


def test_katz_leaves_something_after_a_history_whose_counts_all_exceed_k(tmp_path):
    text = "a b\n" * 9 + "c d\nd c\nc\n"
    vocabulary, model, _ = estimated(tmp_path, text, 2, "katz")
    probs = distribution(model, vocabulary, ("a",))
    assert probs["b"] == pytest.approx(9 / 10)  # one more in the denominator
    assert min(probs.values()) > 0
    assert math.fsum(probs.values()) == pytest.approx(1, abs=1e-12)


def test_katz_says_which_ratios_are_undefined(tmp_path):
    _, model, oracle = estimated(tmp_path, random_text(seed=23), 3, "katz")
    assert model.discounts[1] == pytest.approx(tuple(oracle.katz_ratio(r, 2) for r in range(1, 8)))
    # All words were seen: those are not discounted.
    assert model.fallbacks == [n for n in (2, 3) if 1.0 in model.discounts[n - 1]]
    assert model.fallbacks


def test_katz_cuts_off_what_comes_once_from_order_three_on(tmp_path):
    text = random_text(seed=24, sentences=200)
    _, usual, oracle = estimated(tmp_path, text, 4, "katz")
    _, whole, _ = estimated(tmp_path, text, 4, "katz", cutoff=[1])
    _, same, _ = estimated(tmp_path, text, 4, "katz", cutoff=[1, 1, 2, 2], katz_k=7)
    for one, other in zip(usual.probs, same.probs, strict=True):
        np.testing.assert_array_equal(one, other)
    by_order = [[c for gram, c in oracle.counts.items() if len(gram) == n] for n in (1, 2, 3, 4)]
    assert [len(keys) for keys in whole.keys[1:]] == [len(counts) for counts in by_order[1:]]
    assert len(usual.keys[1]) == len(by_order[1])
    assert len(usual.keys[3]) == sum(count > 1 for count in by_order[3]) < len(by_order[3])
    # Numbers of counts are those before the cut.
    assert usual.discounts == whole.discounts


@pytest.mark.parametrize(("name", "form"), [each for each in METHODS if each[1] == "back-off"])
def test_a_history_that_every_word_follows(name, form, tmp_path):
    """There is no other word to leave anything to, and 1 - sum of the lower order is 0."""
    text = "a b a a b\nb a\na\nb b a\n" * 3
    vocabulary, model, _ = estimated(tmp_path, text, 2, name, form)
    for history in ("a", "b"):
        probs = distribution(model, vocabulary, (history,))
        assert math.fsum(probs.values()) == pytest.approx(1, abs=1e-12)
        assert min(probs.values()) > 0
    assert all(np.isfinite(each).all() for each in [*model.backoffs, *model.probs])


# --- Jelinek-Mercer --------------------------------------------------------------------------------------------------


def test_weights_by_order_are_the_best_of_a_grid(tmp_path):
    text, held_out = random_text(seed=26), random_text(seed=27, sentences=40)
    vocabulary, tokens = read_text(tmp_path, text)
    _, other = read_text(tmp_path, held_out, vocabulary)
    levels = count_ngrams(tokens, 2, vocabulary.size, continuation=False)
    found, _ = estimate_weights(levels, other, vocabulary.size, by_count=False)

    def with_prior(values):
        oracle = Oracle(text, 2, "jelinek-mercer", weights=[lambda total, v=value: v for value in values])
        predicted = len(held_out.split()) + 40
        prior = sum(math.log(value * (1 - value)) / 2 for value in values)
        return prior - predicted * math.log(oracle.perplexity(held_out, 2))

    grid = [(one / 20, two / 20) for one in range(1, 20) for two in range(1, 20)]
    best = max(grid, key=with_prior)
    weights = [float(each[0]) for each in found]
    assert weights == pytest.approx(best, abs=0.05)
    assert with_prior(weights) >= with_prior(best)
    for step in (-0.005, 0.005):
        for near in ([weights[0] + step, weights[1]], [weights[0], weights[1] + step]):
            assert with_prior(weights) > with_prior(near)


@pytest.mark.parametrize("by_count", [False, True])
def test_a_round_never_makes_the_held_out_text_less_probable(by_count, tmp_path):
    vocabulary, tokens = read_text(tmp_path, random_text(seed=28))
    _, held_out = read_text(tmp_path, random_text(seed=29), vocabulary)
    levels = count_ngrams(tokens, 4, vocabulary.size, continuation=False)
    weights, trace = estimate_weights(levels, held_out, vocabulary.size, by_count=by_count)
    assert len(trace) > 5
    assert np.diff(trace).min() > -1e-9
    assert all(((0 < each) & (each < 1)).all() for each in weights)
    assert len({round(value, 6) for value in weights[1].tolist()}) > 3 * by_count


def test_buckets_are_powers_of_two():
    totals = np.array([0.0, 1, 2, 3, 4, 7, 8, 2**20 - 1, 2**20])
    assert bucket(totals, 64).tolist() == [0, 0, 1, 1, 2, 2, 3, 19, 20]
    assert bucket(totals, 1).tolist() == [0] * 9


def test_a_held_out_text_shorter_than_the_order(tmp_path):
    vocabulary, tokens = read_text(tmp_path, random_text(seed=30))
    _, held_out = read_text(tmp_path, "a\n", vocabulary)
    model = SmoothedModel(tokens, 5, vocabulary.size, smoothing="jelinek-mercer", held_out=held_out)
    assert math.fsum(distribution(model, vocabulary, tuple("abcd")).values()) == pytest.approx(1, abs=1e-12)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"smoothing": "good"}, r"--smoothing: needs one of jelinek-mercer, .*; got good\. Use modified-kneser-ney\."),
        ({"form": "backing"}, r"form: needs one of interpolated, back-off; got backing\."),
        ({"smoothing": "jelinek-mercer"}, r"--held-out: needs text .* of --smoothing jelinek-mercer; got none"),
        ({"smoothing": "jelinek-mercer", "form": "back-off"}, r"--back-off: .*; got jelinek-mercer\. Use katz or wi"),
        ({"smoothing": "katz", "katz_k": 0}, r"--katz-k: needs a whole number from 1 to 10000; got 0\."),
        ({"cutoff": [1, 0]}, r"--cutoff: needs 1 to 3 whole numbers of at least 1, for --order 3; got 1 0\."),
        ({"cutoff": [1, 1, 1, 2]}, r"--cutoff: needs 1 to 3 .*; got 1 1 1 2\."),
        ({"cutoff": []}, r"--cutoff: needs 1 to 3 .*; got \."),
    ],
)
def test_refused(options, message, tmp_path):
    vocabulary, tokens = read_text(tmp_path, "a b\n")
    with pytest.raises(ValueError, match=message):
        SmoothedModel(tokens, 3, vocabulary.size, **options)
