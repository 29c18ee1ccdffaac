"""One word's score against the softmax over all words, with a feed-forward language model's body before either."""

import statistics

import pytest
import torch

from fairseq_tiedemb.embedding import SharedEmbedding
from fairseq_tiedemb.outputs import OutputLayer

from .conftest import Record
from .interleave import interleave, ratio

CONTEXT, EMBEDDING, HIDDEN = 4, 100, 200


@pytest.mark.benchmark
@pytest.mark.parametrize("together", [1, 100], ids=["one context", "100 contexts"])
@pytest.mark.parametrize("vocabulary", [10_000, 100_000])
def test_raw_scores(vocabulary: int, together: int, record: Record) -> None:
    inputs = torch.randn(vocabulary, EMBEDDING)
    body = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(CONTEXT * EMBEDDING, HIDDEN), torch.nn.Tanh())
    output = OutputLayer(SharedEmbedding(vocabulary, HIDDEN, 1, bias=True))
    context = torch.randint(vocabulary, (together, CONTEXT))
    words = torch.randint(4, vocabulary, (together,))
    repeats = 100 if together == 1 else 5

    def features() -> torch.Tensor:
        return body(torch.nn.functional.embedding(context, inputs))

    def all_words() -> torch.Tensor:
        return output.scores(features()).log_softmax(1).gather(1, words.unsqueeze(1)).squeeze(1)

    contestants = {
        "body alone": features,
        "one word": lambda: output.raw_scores(features(), words),
        "all words": all_words,
    }

    def repeated(name: str) -> None:
        for _ in range(repeats):
            contestants[name]()

    with torch.no_grad():
        seconds = interleave({name: lambda name=name: repeated(name) for name in contestants}, rounds=5)
    print(f"V {vocabulary:,}, {together} at once")
    for name, times in seconds.items():
        print(f"  {name:12s} {statistics.median(times) / repeats * 1e6:10.0f} us")
    times_as_fast = ratio(seconds, "all words", "one word")
    print(f"  all words / one word {times_as_fast}")
    record("speed-lm", f"raw,{vocabulary},{together}", {"ratio": times_as_fast})
