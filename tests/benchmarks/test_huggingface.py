"""A step of a language model of Transformers: its own loss, torch's by chunks, and that of ``for_transformers``."""

import copy

import pytest
import torch
import torch.nn.functional as F

from fairseq_tiedemb import for_transformers

from .interleave import interleave, ratio
from .language_model_peers import HAS_LINEAR_CROSS_ENTROPY, chunks_of_256


@pytest.mark.benchmark
def test_training_step() -> None:
    transformers = pytest.importorskip("transformers")
    config = transformers.GPT2Config(
        vocab_size=10_000, n_positions=64, n_embd=128, n_layer=2, n_head=4, bos_token_id=None, eos_token_id=None
    )
    stock = transformers.GPT2LMHeadModel(config).train()
    chunked, ours = copy.deepcopy(stock), for_transformers(copy.deepcopy(stock))
    text = torch.randint(0, 10_000, (20, 64))

    def by_chunks() -> torch.Tensor:
        features = chunked.transformer(text).last_hidden_state[:, :-1].flatten(0, 1)
        target = text[:, 1:].flatten()
        return F.linear_cross_entropy(features, chunked.lm_head.weight, target, options=chunks_of_256())

    losses = {"transformers": lambda: stock(text, labels=text).loss, "ours": lambda: ours(text, labels=text).loss}
    if HAS_LINEAR_CROSS_ENTROPY:
        losses["F.linear_cross_entropy"] = by_chunks
    seconds = interleave({name: lambda loss=loss: loss().backward() for name, loss in losses.items()}, rounds=9)
    print("GPT-2, 2 x 128, 10k words, 20 x 64 tokens: ours over")
    for name in seconds.keys() - {"ours"}:
        print(f"  {name:24s} {ratio(seconds, name, 'ours')}")
