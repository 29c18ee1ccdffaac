"""Skip-gram with negative sampling beside gensim's: the same text and options, pairs drawn and learned, one thread."""

import importlib.util
import statistics
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from fairseq.data import Dictionary
from fairseq.models import ARCH_MODEL_REGISTRY

from fairseq_tiedemb.models.word2vec import Word2VecConfig
from fairseq_tiedemb.optim.row_sgd import RowSGD
from fairseq_tiedemb.outputs.noise import Noise
from fairseq_tiedemb.outputs.pair_steps import BLOCK, BLOCK_NOISE, sizes_of_steps
from fairseq_tiedemb.tasks._pairs import WordPairs, keep_probabilities

from .conftest import Record
from .interleave import interleave, ratio

TYPES, TOKENS, SENTENCE, SUBSAMPLING = 47_000, 100_000, 200, 1e-4


def zipf_text() -> tuple[np.ndarray, np.ndarray]:
    """Tokens, of fairseq's numbers, and how often each word comes in a text of which they are a part."""
    frequencies = 1 / np.arange(1, TYPES + 1)
    tokens = np.random.default_rng(1).choice(TYPES, TOKENS, p=frequencies / frequencies.sum())
    counts = np.maximum(18_000_000 * frequencies / frequencies.sum(), 5).astype(np.int64)
    return tokens + 4, np.concatenate((np.zeros(4, np.int64), counts))


def pairs_of(tokens: np.ndarray, counts: np.ndarray) -> WordPairs:
    text = torch.from_numpy(tokens)
    stream: Any = SimpleNamespace(
        ends=np.arange(SENTENCE, TOKENS + 1, SENTENCE), tokens=lambda start, stop: text[start:stop]
    )
    keep = keep_probabilities(counts, SUBSAMPLING)
    return WordPairs(stream, keep, window=5, max_tokens=2000, seed=1, predicts_centre=False)


def training(pairs: WordPairs, counts: np.ndarray, **options: Any) -> Callable[[], None]:
    words = Dictionary()
    for number in range(TYPES):
        words.add_symbol(f"w{number}")
    cfg = Word2VecConfig(**options)
    cfg._name = "word2vec_skipgram"
    task = SimpleNamespace(source_dictionary=words, word_counts=counts)
    model = ARCH_MODEL_REGISTRY["word2vec_skipgram"].build_model(cfg, task)
    model.set_sparse_gradients(True, 0.025)
    optimizer = RowSGD(model.parameters(), lr=0.025, clip_row_norm=10.0)

    def epoch() -> None:
        for index in range(len(pairs)):
            batch = pairs.collater([pairs[index]])
            optimizer.zero_grad(set_to_none=True)
            model(**batch["net_input"], target=batch["target"]).loss.backward()
            optimizer.step()

    return epoch


def rows_and_products(pairs: WordPairs, counts: np.ndarray) -> Callable[[], None]:
    """What no way of learning a batch in steps by torch's operators can leave out: the limit of ours.

    Each step reads and writes the rows of its words; scores and two gradients are a product each, of blocks of noise
    words alone. There are no pairs, no random numbers, no losses and no gradients.
    """
    noise = Noise(torch.from_numpy(counts), 0.75, torch.from_numpy(counts).eq(0))
    inputs, outputs = (torch.zeros(len(counts), 100) for _ in range(2))
    batches = []
    for index in range(len(pairs)):
        sizes = [-(size // -BLOCK) for size in sizes_of_steps(pairs[index]["nsentences"])]
        words = noise.draw((sum(sizes) * BLOCK_NOISE,)).split([size * BLOCK_NOISE for size in sizes])
        batches.append((sizes, pairs[index]["net_input"]["src_tokens"].tensor_split(len(sizes)), words))

    def epoch() -> None:
        for batch in batches:
            for size, centres, noise_words in zip(*batch, strict=True):
                features = torch.zeros(size, BLOCK, 100)
                features.view(-1, 100)[: len(centres)] = inputs.index_select(0, centres)
                of_noise = outputs.index_select(0, noise_words).view(size, BLOCK_NOISE, 100)
                scores = torch.bmm(features, of_noise.transpose(1, 2))
                of_features = torch.bmm(scores, of_noise).view(-1, 100)
                outputs.index_add_(0, noise_words, torch.bmm(scores.transpose(1, 2), features).view(-1, 100))
                inputs.index_add_(0, centres, of_features[: len(centres)])

    return epoch


def peers(tokens: np.ndarray, counts: np.ndarray) -> dict[str, Callable[[], object]]:
    """gensim's, if it is there."""
    if importlib.util.find_spec("gensim") is None:
        print("\ngensim is not installed: without it")
        return {}
    import gensim.models

    peer = gensim.models.Word2Vec(sg=1, vector_size=100, window=5, negative=5, sample=SUBSAMPLING, workers=1, seed=1)
    peer.build_vocab_from_freq({str(word): int(count) for word, count in enumerate(counts) if count})
    sentences = [list(map(str, part)) for part in tokens.reshape(-1, SENTENCE)]
    return {"gensim": lambda: peer.train(sentences, total_words=TOKENS, total_examples=len(sentences), epochs=1)}


@pytest.mark.benchmark
def test_skipgram(record: Record) -> None:
    tokens, counts = zipf_text()
    pairs = pairs_of(tokens, counts)
    contestants = {
        "untied": training(pairs, counts),
        "tied": training(pairs, counts, share_decoder_input_output_embed=True),
        "noise for each pair": training(pairs, counts, noise_for="pair"),
        **peers(tokens, counts),
        "rows and products": rows_and_products(pairs, counts),
    }
    count = sum(pairs[index]["ntokens"] for index in range(len(pairs)))
    seconds = interleave(contestants, rounds=5)
    print(f"\n{TOKENS:,} tokens of {TYPES:,} types, {count:,} pairs, D = 100, 5 negatives")
    for name, times in seconds.items():
        print(f"  {name:20s} {count / statistics.median(times) / 1e3:6.0f} thousand pairs/s")
    if "gensim" in seconds:
        for name in ("untied", "tied", "rows and products"):
            print(f"  pairs/s, {name} / gensim {ratio(seconds, 'gensim', name)}")
    rows = {"untied": "untied", "tied": "tied", "noise for each pair": "own-noise", "gensim": "gensim"}
    for name, row in ((name, row) for name, row in rows.items() if name in seconds):
        over = {} if row == "gensim" or "gensim" not in seconds else {"over": ratio(seconds, "gensim", name)}
        record("speed-word2vec", row, {"pairs": f"{count / statistics.median(seconds[name]) / 1e3:.0f}", **over})
