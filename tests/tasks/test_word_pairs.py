"""Pairs of words: which there are, how often, and that they depend on nothing but seed and epoch."""

from collections import Counter
from collections.abc import Iterable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from fairseq_tiedemb.tasks._pairs import WordPairs, keep_probabilities
from fairseq_tiedemb.tasks._streams import TokenStream
from fairseq_tiedemb.tasks.word_pairs import WordPairsTask

from .streams import WORDS, Sentences, stream

EOS = WORDS.eos()
KEEP_ALL = np.array([0.0] * 4 + [1.0] * (len(WORDS) - 4))


pytestmark = pytest.mark.filterwarnings("ignore:'pin_memory' argument is set")


def text(*sentences: Iterable[int]) -> TokenStream:
    return TokenStream(
        Sentences([torch.tensor([*sentence, EOS], dtype=torch.int32) for sentence in sentences]), WORDS, "train"
    )


def pairs_of(dataset: WordPairs) -> list[tuple[int, int]]:
    found = []
    for item in (dataset[index] for index in range(len(dataset))):
        source, which, target = item["net_input"]["src_tokens"], item["net_input"]["centres"], item["target"]
        if dataset.predicts_centre:
            found += zip(target[which].tolist(), source.tolist(), strict=True)
        else:
            found += zip(source[which].tolist(), target.tolist(), strict=True)
    return found


def dataset(tokens: TokenStream, **options: Any) -> WordPairs:
    defaults = {"keep": KEEP_ALL, "window": 3, "max_tokens": 50, "seed": 1, "predicts_centre": False}
    return WordPairs(tokens, **{**defaults, **options})


def test_window_of_one_is_all_neighbours() -> None:
    found = pairs_of(dataset(text([4, 5, 6], [7], [8, 9]), window=1))
    assert Counter(found) == Counter([(4, 5), (5, 4), (5, 6), (6, 5), (8, 9), (9, 8)])


@pytest.mark.parametrize("predicts_centre", [False, True])
def test_pairs_are_those_of_a_window_of_each_centre(predicts_centre: bool) -> None:
    """All words differ, so that a pair says where it is from."""
    tokens = text(range(4, 14), range(14, 24))
    for epoch in range(1, 30):
        pairs = dataset(tokens, window=4, predicts_centre=predicts_centre)
        pairs.set_epoch(epoch)
        windows: dict[int, set[int]] = {}
        found = pairs_of(pairs)
        assert len(set(found)) == len(found)
        for centre, context in found:
            windows.setdefault(centre, set()).add(context)
        for centre, contexts in windows.items():
            first = 4 if centre < 14 else 14
            half_width = max(abs(centre - context) for context in contexts)
            assert half_width <= 4
            expected = set(range(max(first, centre - half_width), min(first + 10, centre + half_width + 1))) - {centre}
            assert contexts == expected


def test_half_widths_are_uniform() -> None:
    tokens = text([4 + number % 20 for number in range(20)])
    widths: Counter[int] = Counter()
    pairs = dataset(tokens, window=4)
    for epoch in range(1, 1001):
        pairs.set_epoch(epoch)
        contexts = [context for centre, context in pairs_of(pairs) if centre == 14]
        widths[max(abs(context - 14) for context in contexts)] += 1
    assert set(widths) == {1, 2, 3, 4}
    # Five standard deviations of a binomial with p = 1/4.
    assert all(abs(count - 250) < 5 * (1000 * 0.25 * 0.75) ** 0.5 for count in widths.values())


def test_windows_stop_at_ends_of_sentences() -> None:
    tokens = text(*([4, 5, 6] if number % 2 else [14, 15, 16, 17] for number in range(40)))
    found = pairs_of(dataset(tokens, window=5))
    assert found
    assert all((centre < 14) == (context < 14) for centre, context in found)


def test_windows_reach_over_what_is_removed() -> None:
    keep = KEEP_ALL.copy()
    keep[[5, 6, 7]] = 0.0
    found = pairs_of(dataset(text([4, 5, 6, WORDS.unk(), 7, 8]), keep=keep, window=1))
    assert sorted(found) == [(4, 8), (8, 4)]


def test_words_stay_with_their_probability() -> None:
    counts = np.array([0, 0, 0, 0, 9000, 900, 90, 10, 0])
    share = counts / counts.sum()
    keep = keep_probabilities(counts, 1e-2)
    for word in (4, 5):
        expected = (np.sqrt(share[word] / 1e-2) + 1) * 1e-2 / share[word]
        assert keep[word] == pytest.approx(expected, rel=1e-12)
        assert expected < 1
    assert keep[6] == keep[7] == 1.0
    assert not keep[[0, 1, 2, 3, 8]].any()
    assert keep_probabilities(counts, 0.0).tolist() == [0, 0, 0, 0, 1, 1, 1, 1, 0]

    # A word that stays is a centre, with another beside it in the sentence.
    keep = KEEP_ALL.copy()
    keep[4] = 0.3
    tokens = text(*([4, 5, 6] for _ in range(4000)))
    centres = sum(
        int((item["net_input"]["src_tokens"] == 4).sum())
        for item in map(dataset(tokens, keep=keep).__getitem__, range(240))
    )
    of = 240 * 48 / 4
    assert abs(centres - 0.3 * of) < 5 * (of * 0.3 * 0.7) ** 0.5


@pytest.mark.parametrize("max_tokens", [1, 2, 5, 12, 50, 1000])
def test_batches_are_whole_sentences_and_all_of_the_text(max_tokens: int) -> None:
    tokens = stream(300)
    pairs = dataset(tokens, max_tokens=max_tokens)
    bounds = pairs.bounds
    assert bounds[0] == 0
    assert bounds[-1] == 300
    ends = {0, *tokens.ends.tolist()}
    longest = 8
    for start, stop in zip(bounds, bounds[1:], strict=False):
        assert 0 < stop - start <= max_tokens
        if max_tokens >= longest:
            assert stop in ends
            following = min((end for end in ends if end > stop), default=None)
            assert following is None or following - start > max_tokens, "another sentence had room"


def test_a_sentence_longer_than_a_batch_is_cut() -> None:
    assert dataset(text([4] * 24, [5, 6]), max_tokens=10).bounds == [0, 10, 20, 28]


def test_counts_are_those_of_the_text() -> None:
    tokens = text([4, 4, WORDS.unk()], [5, 4])
    assert tokens.word_counts()[:6].tolist() == [0, 0, 0, 0, 3, 1]


def task_with(**options: Any) -> WordPairsTask:
    given = {"data": "", "window": 3, "subsampling": 0.0, "min_count": 1, "seed": 1, "train_subset": "train", **options}
    task = WordPairsTask(SimpleNamespace(**given), WORDS)
    task.state.merge_state_dict({"word_counts": torch.tensor([0] * 4 + [5] * (len(WORDS) - 4))})
    return task


def epoch_of(task: WordPairsTask, tokens: TokenStream, epoch: int = 1, skip: int = 0, **options: Any) -> list[Any]:
    """The batches of an epoch, all or those from a place on, as a training gets them."""
    iterator = task.get_batch_iterator(tokens, 20, epoch=epoch, **options)
    if skip:
        iterator.load_state_dict({"version": 2, "epoch": epoch, "iterations_in_epoch": skip, "shuffle": True})
    return [
        (each["id"].tolist(), each["target"].tolist(), each["net_input"]["centres"].tolist())
        for each in iterator.next_epoch_itr()
        if each
    ]


def test_pairs_depend_on_seed_and_epoch_alone() -> None:
    tokens = stream(400)
    task = task_with(subsampling=0.05)
    first = epoch_of(task, tokens)
    assert len(first) > 20
    assert epoch_of(task, tokens, num_workers=2) == first
    second = epoch_of(task, tokens, epoch=2)
    assert dict_of(second) != dict_of(first), "an epoch has pairs of its own, and not only another order"
    assert dict_of(epoch_of(task_with(subsampling=0.05, seed=2), tokens)) != dict_of(first)
    # Resumed in mid-epoch, also with data workers, which are started before the epoch is set.
    for workers in (0, 2):
        assert epoch_of(task, tokens, epoch=2, skip=7, num_workers=workers) == second[7:]


def dict_of(batches: list[Any]) -> dict[int, Any]:
    return {number: rest for (number,), *rest in batches}


def test_processes_share_the_batches() -> None:
    tokens, task = stream(400), task_with()
    alone = epoch_of(task, tokens)
    parts = [epoch_of(task, tokens, num_shards=2, shard_id=rank) for rank in range(2)]
    assert dict_of(parts[0] + parts[1]) == dict_of(alone)


def test_other_splits_have_the_same_pairs_for_every_seed() -> None:
    tokens = stream(200)
    tokens.split = "valid"
    assert epoch_of(task_with(seed=1), tokens) == epoch_of(task_with(seed=2), tokens)


def test_a_batch_without_pairs_is_skipped() -> None:
    pairs = dataset(text([WORDS.unk()], [4]))
    assert pairs[0]["ntokens"] == 0
    assert pairs.collater([pairs[0]]) == {}
    assert pairs.collater([]) == {}


def test_the_first_batch_has_pairs() -> None:
    """fairseq gives it to processes without data, and an epoch may draw none of a batch's words."""
    tokens = text([WORDS.unk()] * 19, range(4, 23))
    iterator = task_with().get_batch_iterator(tokens, 20)
    assert iterator.first_batch["ntokens"]
    assert sorted(number for [number] in iterator.frozen_batches) == [*range(len(iterator.dataset))]
    with pytest.raises(ValueError, match="--max-tokens: needs pairs of words; got none in .* --subsampling 0.0. Use"):
        task_with().get_batch_iterator(text([WORDS.unk()] * 19), 20)


def test_rare_words_are_left_out() -> None:
    task = task_with(min_count=6)
    assert not task.word_counts.any()
    with pytest.raises(ValueError, match="--min-count: needs two words or more that occur 6 times .* got 0"):
        task.build_model(None)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"window": 0}, "--window: needs 1 to 10,000; got 0"),
        ({"window": 10**9}, "--window: needs 1 to 10,000; got 1000000000"),
        ({"min_count": 0}, "--min-count: needs at least 1; got 0"),
        ({"subsampling": 1.0}, r"--subsampling: needs a number in \[0, 1\); got 1.0"),
        ({"subsampling": -1e-3}, r"--subsampling: needs a number in \[0, 1\); got -0.001"),
    ],
)
def test_refused_options(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        task_with(**options)


@pytest.mark.parametrize("sizes", [(None, 5), (20, 5), (None, None)])
def test_a_batch_needs_a_number_of_tokens(sizes: tuple[Any, Any]) -> None:
    message = f"--max-tokens: needs a number of text tokens .* got --max-tokens {sizes[0]} and --batch-size {sizes[1]}"
    with pytest.raises(ValueError, match=message):
        task_with().get_batch_iterator(stream(30), *sizes)
