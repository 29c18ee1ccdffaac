"""A corpus as one stream: every token is predicted once, from the one before it, in rows that are read in order."""

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from fairseq.data.indexed_dataset import IndexedDatasetBuilder, MMapIndexedDatasetBuilder

from fairseq_tiedemb.tasks._streams import StreamRows, TokenStream, random_lengths

from .streams import WORDS, Sentences, batches, sentences, stream, task_with

# (tokens, rows over all processes, tokens of a row in a batch, processes); 41 = 20 * 2 + 1 leaves all rows but the last
# of all processes empty in the last batch.
CASES = [
    (100, 1, 1, 1),
    (100, 1, 7, 1),
    (100, 7, 5, 1),
    (101, 4, 100, 2),
    (97, 6, 4, 3),
    (41, 20, 2, 2),
    (20, 20, 3, 4),
    (399, 20, 20, 2),
    (1, 1, 5, 1),
]
every_case = pytest.mark.parametrize(("length", "rows", "chunk", "shards"), CASES)


@pytest.mark.parametrize("length", [1, 2, 60])
def test_tokens_are_slices_of_the_text(length: int) -> None:
    tokens = stream(length)
    text = torch.cat(list(tokens.sentences)).long()
    assert len(tokens) == len(text) == length
    for start in range(length):
        for stop in range(start + 1, length + 1):
            assert torch.equal(tokens.tokens(start, stop), text[start:stop])
            source, target = tokens.pair(start, stop)
            assert torch.equal(target, text[start:stop])
            assert source.tolist() == [WORDS.eos(), *text.tolist()][start:stop]


def test_sentences_without_any_token_are_passed_over() -> None:
    empty = torch.empty(0, dtype=torch.int32)
    text = Sentences([empty, torch.tensor([5, 2]), empty, empty, torch.tensor([6, 7, 2]), empty])
    tokens = TokenStream(text, WORDS, "train")
    found = [tokens.tokens(start, stop).tolist() for start, stop in ((0, 5), (1, 3), (4, 5))]
    assert found == [[5, 2, 6, 7, 2], [2, 6], [2]]


def read_rows(length: int, rows: int, chunk: int, shards: int) -> list[list[dict[str, Any]]]:
    """All batches of each process."""
    return [
        batches(task_with(chunk), stream(length), max_sentences=rows // shards, num_shards=shards, shard_id=shard)
        for shard in range(shards)
    ]


def side_by_side(shards: list[list[dict[str, Any]]], name: str) -> list[list[int]]:
    """What each row reads in an epoch without padding, one list a row; rows of the first process first."""
    found = []
    for shard in shards:
        columns = [batch["target"] if name == "target" else batch["net_input"][name] for batch in shard]
        kept = [batch["target"].ne(WORDS.pad()) for batch in shard]
        for row in range(shard[0]["nsentences"]):
            found.append([int(x) for each, keep in zip(columns, kept, strict=True) for x in each[row][keep[row]]])
    return found


@every_case
def test_every_token_is_predicted_once_from_the_one_before(length: int, rows: int, chunk: int, shards: int) -> None:
    text = torch.cat(list(stream(length).sentences)).tolist()
    read = read_rows(length, rows, chunk, shards)
    targets, sources = side_by_side(read, "target"), side_by_side(read, "src_tokens")
    assert len(targets) == rows
    # Rows one after the other are the text; the inputs are the same, moved by one.
    assert sum(targets, []) == text
    assert sum(sources, []) == [WORDS.eos(), *text][:-1]
    assert max(map(len, targets)) - min(map(len, targets)) <= 1
    assert sum(batch["ntokens"] for shard in read for batch in shard) == length


@every_case
def test_processes_have_equally_many_batches_at_equal_positions(
    length: int, rows: int, chunk: int, shards: int
) -> None:
    read = read_rows(length, rows, chunk, shards)
    steps = math.ceil(math.ceil(length / rows) / chunk)
    for shard in read:
        assert [batch["net_input"]["stream_position"] for batch in shard] == [chunk * step for step in range(steps)]
        for batch in shard:
            assert batch["net_input"]["src_tokens"].shape == batch["target"].shape
            assert batch["target"].size(0) == batch["nsentences"] == rows // shards
            assert 1 <= batch["target"].size(1) <= chunk  # a kernel refuses no steps at all
            lengths = batch["target"].ne(WORDS.pad()).sum(1)
            assert torch.equal(batch["net_input"]["src_lengths"], lengths)
            assert int(lengths.sum()) == batch["ntokens"]
        # Padding comes last, and in the last batch only: what comes before it fills its chunk.
        assert all(batch["ntokens"] == batch["target"].numel() for batch in shard[:-1])
        words = shard[-1]["target"].ne(WORDS.pad()).int()
        assert torch.equal(words, words.sort(1, descending=True)[0])


def test_lengths_are_drawn_anew_in_every_epoch_of_training() -> None:
    """All processes and a resumed training draw the same."""
    task = task_with(30, random_length=True, train_subset="train")
    drawn = {}
    for epoch in (1, 2):
        for shard in (0, 1):
            read = batches(task, stream(9000), max_sentences=1, num_shards=2, shard_id=shard, epoch=epoch)
            drawn[epoch, shard] = [batch["target"].size(1) for batch in read]
            assert [batch["net_input"]["stream_position"] for batch in read] == [
                sum(drawn[epoch, shard][:step]) for step in range(len(read))
            ]
            assert [batch["is_last"] for batch in read] == [*[False] * (len(read) - 1), True]
        assert drawn[epoch, 0] == drawn[epoch, 1]
        assert sum(drawn[epoch, 0]) == 4500
    assert drawn[1, 0] != drawn[2, 0]
    for split, random in (("valid", True), ("train", False)):
        text = TokenStream(sentences(900), WORDS, split)
        read = batches(task_with(30, random_length=random, train_subset="train"), text)
        assert {batch["target"].size(1) for batch in read} == {30}


def test_one_length_of_twenty_is_half_and_none_is_below_five() -> None:
    lengths = np.diff(random_lengths(100, 400_000, (1, 2)), prepend=0)
    few = lengths[lengths < 75]  # five standard deviations from both means
    assert 0.04 < len(few) / len(lengths) < 0.06
    for drawn, mean in ((few, 50), (lengths[lengths >= 75], 100)):
        assert drawn.mean() == pytest.approx(mean, abs=2)
        assert drawn.std() == pytest.approx(5, abs=1)
    assert np.diff(random_lengths(6, 5000, (1, 2)), prepend=0).min() == 5


@pytest.mark.parametrize(("length", "chunk"), [(400, 20), (397, 7), (41, 2)])
def test_two_processes_of_ten_rows_read_what_one_of_twenty_reads(length: int, chunk: int) -> None:
    (one,), two = read_rows(length, 20, chunk, 1), read_rows(length, 20, chunk, 2)
    assert side_by_side(two, "target") == side_by_side([one], "target")
    for whole, *parts in zip(one, *two, strict=True):
        assert sum((part["id"].tolist() for part in parts), []) == whole["id"].tolist()
        assert {part["net_input"]["stream_position"] for part in parts} == {whole["net_input"]["stream_position"]}


@pytest.mark.parametrize("workers", [0, 2])
def test_an_epoch_goes_on_where_it_was_left(workers: int) -> None:
    """In order and not shuffled, although fairseq-train asks for a shuffle."""
    settings = {"max_sentences": 4, "num_workers": workers}
    expected = batches(task_with(5), stream(103), **settings)
    first = task_with(5).get_batch_iterator(stream(103), **settings)
    iterator = first.next_epoch_itr(shuffle=True)
    read = [next(iterator) for _ in range(3)]
    second = task_with(5).get_batch_iterator(stream(103), **settings)
    second.load_state_dict(first.state_dict())
    read += list(second.next_epoch_itr(shuffle=True))
    assert [batch["id"].tolist() for batch in read] == [batch["id"].tolist() for batch in expected]


@pytest.mark.parametrize("epoch", [1, 2])
def test_every_epoch_begins_at_the_first_token(epoch: int) -> None:
    iterator = task_with(5).get_batch_iterator(stream(103), max_sentences=4, epoch=epoch)
    first = next(iter(iterator.next_epoch_itr(shuffle=True)))
    assert first["net_input"]["stream_position"] == 0
    assert first["id"].tolist() == [0, 1, 2, 3]


def test_without_a_batch_size_there_is_one_row() -> None:
    assert batches(task_with(5), stream(10))[0]["nsentences"] == 1


@pytest.mark.parametrize("empty", [Sentences(), Sentences([torch.empty(0, dtype=torch.int32)])])
def test_an_empty_split_is_refused(empty: Sentences) -> None:
    with pytest.raises(ValueError, match="split valid: needs at least one token; got none. Use a file that is not em"):
        TokenStream(empty, WORDS, "valid")


def test_words_that_the_dictionary_lacks_are_refused() -> None:
    text = Sentences([torch.tensor([5, 2]), torch.tensor([len(WORDS), 2])])
    with pytest.raises(ValueError, match="split test: needs word indices below 24, the size of dict.txt; got 24. Use"):
        TokenStream(text, WORDS, "test")


def test_a_text_without_line_ends_is_not_copied_for_every_row(tmp_path: Path) -> None:
    """A batch costs what it holds, not what its sentences hold: text8 is one sentence."""
    text = sentences(20_000)
    write_corpus(tmp_path / "train", "mmap", Sentences([torch.cat(list(text))]))
    task = task_with(5, data=str(tmp_path), dataset_impl="mmap")
    task.load_dataset("train")
    stream = task.datasets["train"]
    assert torch.equal(stream.tokens(0, 20_000), torch.cat(list(text)).long())
    found = stream.tokens(11_000, 11_005)
    assert torch.equal(found, torch.cat(list(text))[11_000:11_005].long())
    assert found.untyped_storage().nbytes() == found.nbytes


@pytest.mark.parametrize("kind", ["mmap", "cached"])
@pytest.mark.parametrize(("length", "tokens"), [(120, "30"), (244, "61"), (241, "60.25")])
def test_a_file_of_another_length_than_its_index_says_is_refused(
    kind: str, length: int, tokens: str, tmp_path: Path
) -> None:
    write_corpus(tmp_path / "train", kind, sentences(60))
    whole = (tmp_path / "train.bin").read_bytes()
    assert len(whole) == 240
    (tmp_path / "train.bin").write_bytes((2 * whole)[:length])
    message = f"split train: needs 60 tokens, as its .idx file says; got {tokens} in its .bin file. Use the files as"
    for mode in ("none", "eos"):
        with pytest.raises(ValueError, match=message):
            task_with(5, data=str(tmp_path), dataset_impl=kind, sample_break_mode=mode).load_dataset("train")


def test_more_rows_than_tokens_are_refused() -> None:
    with pytest.raises(ValueError, match="--batch-size: needs at most 5 rows over all processes, .* train; got 6. Use"):
        StreamRows(stream(5), 6, 2)
    with pytest.raises(ValueError, match="got 6"):  # of two processes
        task_with(2).get_batch_iterator(stream(5), max_sentences=3, num_shards=2)


@pytest.mark.parametrize("kind", ["mmap", "lazy", "cached", "raw"])
def test_every_format_of_fairseqs_corpora_is_read(kind: str, tmp_path: Path) -> None:
    for name, seed in (("train", 1), ("train1", 2)):
        write_corpus(tmp_path / name, kind, sentences(60, seed))
    task = task_with(5, data=str(tmp_path), dataset_impl=kind)
    for combine, seeds in ((False, [1]), (True, [1, 2])):
        task.load_dataset("train", combine=combine)
        expected = [token for seed in seeds for sentence in sentences(60, seed) for token in sentence.tolist()]
        read = batches(task, task.datasets["train"], max_sentences=3, num_workers=2)
        assert sum(side_by_side([read], "target"), []) == expected


def write_corpus(prefix: Path, kind: str, text: Sentences) -> None:
    if kind == "raw":
        prefix.write_text("".join(WORDS.string(sentence) + "\n" for sentence in text))
        return
    make = MMapIndexedDatasetBuilder if kind == "mmap" else IndexedDatasetBuilder
    builder = make(f"{prefix}.bin", dtype=np.int32)
    for sentence in text:
        builder.add_item(sentence)
    builder.finalize(f"{prefix}.idx")
