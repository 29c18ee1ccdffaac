"""What tying saves an update: models with a table for each role, with the decoder's tables tied, and with one for all.

Nothing is asked: their products are the same, and only clipping, the optimizer and sums of gradients have less to do.
"""

import statistics
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch

from fairseq_tiedemb.optim.fused_adam import FusedAdam

from ..models import families
from ..models.common import count, dictionary
from . import attention_nmt_peers, language_model_peers, test_transformer
from .conftest import Record
from .interleave import interleave, ratio

WORDS = dictionary(language_model_peers.VOCABULARY)
# Tables of each role, a decoder's tied, and one for all, with the ends of the names of presets.
UNTIED, DECODER, ALL = "untied", "wt", "twwt"
SHARING: dict[str, dict[str, bool]] = {UNTIED: {}, DECODER: families.DECODER, ALL: families.ALL}
Step = tuple[Any, Callable[[], torch.Tensor]]  # a model, and the mean loss of its batch


def lstm(size: str, rows: int, length: int, way: str) -> Step:
    """An LSTM language model without dropout."""
    arch = f"zaremba_lm_{size}" + ("" if way == UNTIED else f"_{way}")
    model = language_model_peers.build_ours(arch, dropout=0.0).train()
    words = language_model_peers.text(rows, length + 1)
    batch = {"src_tokens": words[:, :-1].contiguous(), "target": words[:, 1:].contiguous(), "stream_position": 0}
    return model, lambda: model(**batch).loss / rows


def transformer_lm(way: str) -> Step:
    """The language model of `recipes/train-transformer-lm.sh`, with its batch."""
    widths = dict.fromkeys(("decoder_embed_dim", "decoder_input_dim", "decoder_output_dim"), 256)
    sizes = {"decoder_ffn_embed_dim": 1024, "decoder_layers": 3, "decoder_attention_heads": 4, "dropout": 0.3}
    options = {**widths, **sizes, "tokens_per_sample": 256, "decoder_normalize_before": True, **SHARING[way]}
    model = families.build("transformer_lm", source=WORDS, target=WORDS, **options).train()
    words = language_model_peers.text(8, 257)
    source, target = words[:, :-1].contiguous(), words[:, 1:].contiguous()
    lengths = torch.full((len(source),), source.size(1))
    return model, lambda: model(source, src_lengths=lengths, target=target).loss / target.numel()


def attention(way: str) -> Step:
    """Attention translation by GRU cells."""
    sizes = attention_nmt_peers.SIZES["256/512/10k"]
    arch = "lstm_nmt" + ("" if way == UNTIED else f"_{way}")
    model = attention_nmt_peers.build_ours(WORDS, sizes, "gru", arch)
    source, target = (torch.randint(4, len(WORDS), (sizes.bsz, length)) for length in (sizes.source, sizes.target))
    previous = torch.cat((torch.full((sizes.bsz, 1), WORDS.eos()), target[:, :-1]), 1)
    return model, lambda: model(source, None, previous, target=target).loss / target.numel()


def transformer(way: str) -> Step:
    """A translation Transformer."""
    model = test_transformer.build("plain", **{"share_all_embeddings": False} | SHARING[way])
    criterion, sample = test_transformer.build_criterion("plain"), test_transformer.sample_of(40)
    return model, lambda: criterion(model, sample)[0] / sample["ntokens"]


BLOCKS = 9
# Rows of the table speed-tying: a model, and how many rounds of one update each are a block, whose times are summed:
# the shorter a round, the more alike its contestants find the machine.
MODELS: dict[str, tuple[Callable[[str], Step], int]] = {
    "lstm,2x200": (partial(lstm, "small", 20, 20), 25),
    "lstm,2x1500": (partial(lstm, "large", 20, 35), 2),
    "transformer-lm": (transformer_lm, 5),
    "nmt,256,GRU": (attention, 2),
    "transformer": (transformer, 2),
}


@pytest.mark.benchmark
@pytest.mark.parametrize("name", MODELS)
def test_update(name: str, record: Record) -> None:
    make, rounds = MODELS[name]
    ways = SHARING if make in (attention, transformer) else (UNTIED, DECODER)
    runs: dict[str, Callable[[], object]] = {}
    parameters: dict[str, int] = {}

    def update(model: Any, loss: Callable[[], torch.Tensor], optimizer: torch.optim.Optimizer) -> None:
        optimizer.zero_grad(set_to_none=True)
        loss().backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()

    for way in ways:
        model, loss = make(way)
        adam = partial(FusedAdam, lr=1e-4, betas=(0.9, 0.98), eps=1e-8, weight_decay=0.0)
        sgd = partial(torch.optim.SGD, lr=0.1)
        optimizer = (sgd if name.startswith("lstm") else adam)(model.parameters())
        runs[way], parameters[way] = partial(update, model, loss, optimizer), count(model)
    measured, figures = interleave(runs, rounds=BLOCKS * rounds), {}
    seconds = {way: [sum(times[block::BLOCKS]) for block in range(BLOCKS)] for way, times in measured.items()}
    for way in ways:
        over, share = ratio(seconds, way, UNTIED), round(parameters[way] / parameters[UNTIED], 3)
        print(f"{name:14s} {way:6s} {statistics.median(measured[way]):7.3f} CPU s an update", end="")
        print(f", {over} of the untied model's, with {share} of its parameters")
        figures |= {} if way == UNTIED else {way: over, f"{way}-parameters": share}
    record("speed-tying", name, figures)
