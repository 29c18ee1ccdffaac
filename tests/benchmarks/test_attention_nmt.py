"""Training steps of attention translation: ours, a plain loop, the bare products, and fairseq's `lstm`."""

import statistics
from types import SimpleNamespace

import pytest
import torch
from fairseq.criterions.label_smoothed_cross_entropy import label_smoothed_nll_loss
from fairseq.data import Dictionary
from fairseq.models.lstm import LSTMDecoder, LSTMEncoder
from torch import nn

from fairseq_tiedemb.models.attention_nmt import LSTMNMTTWWT, LSTMNMTConfig
from fairseq_tiedemb.modules.cells import CELLS

from .attention_nmt_peers import BareProducts, PlainLoop, Sizes, training_flops
from .interleave import interleave, ratio

SIZES = {
    "256/512/10k": Sizes(embed=256, hidden=512, vocabulary=10_000, bsz=72, source=24, target=25),
    "500/1000/90k": Sizes(embed=500, hidden=1000, vocabulary=90_000, bsz=32, source=24, target=25),
}


def dictionary(size: int) -> Dictionary:
    words = Dictionary()
    for index in range(size - len(words)):
        words.add_symbol(f"w{index}")
    return words


class FairseqLSTM(nn.Module):
    """fairseq's `lstm` with a bidirectional encoder, three-way sharing and the loss as its criterion computes it."""

    def __init__(self, words: Dictionary, sizes: Sizes):
        super().__init__()
        table = nn.Embedding(len(words), sizes.embed, words.pad())
        nn.init.uniform_(table.weight, -0.1, 0.1)
        self.encoder = LSTMEncoder(
            words, sizes.embed, sizes.hidden, 1, 0.0, 0.0, True, left_pad=False, pretrained_embed=table
        )
        self.decoder = LSTMDecoder(
            words, sizes.embed, sizes.hidden, sizes.embed, 1, 0.0, 0.0, True, 2 * sizes.hidden, table, True
        )

    def forward(self, source: torch.Tensor, previous: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        lengths = torch.full((len(source),), source.size(1))
        scores, _ = self.decoder(previous, self.encoder(source, lengths))
        log_probabilities = torch.log_softmax(scores, -1)
        return label_smoothed_nll_loss(log_probabilities.flatten(0, 1), target.flatten(), 0.0, 1)[0]

    def flops(self, sizes: Sizes) -> int:
        """Products of a training step: 6 a weight and a word, and attention's."""
        attention = sizes.bsz * sizes.target * sizes.source * 2 * sizes.hidden * 2 * 3 * 2
        source = sum(p.numel() for name, p in self.encoder.named_parameters() if "weight" in name and "lstm" in name)
        target = sum(p.numel() for p in self.decoder.parameters() if p.dim() == 2)
        return 6 * sizes.bsz * (sizes.source * source + sizes.target * target) + attention


@pytest.mark.benchmark
@pytest.mark.parametrize("cell", CELLS)
@pytest.mark.parametrize("name", SIZES)
def test_training_step(name: str, cell: str) -> None:
    sizes = SIZES[name]
    words = dictionary(sizes.vocabulary)
    task = SimpleNamespace(source_dictionary=words, target_dictionary=words, cfg=SimpleNamespace())
    cfg = LSTMNMTConfig(
        cell=cell,
        dropout=0.0,
        encoder_embed_dim=sizes.embed,
        decoder_embed_dim=sizes.embed,
        decoder_out_embed_dim=sizes.embed,
        encoder_hidden_size=sizes.hidden,
        decoder_hidden_size=sizes.hidden,
        max_source_positions=1000,
        max_target_positions=1000,
    )
    ours = LSTMNMTTWWT.build_model(cfg, task)
    loop = PlainLoop(ours, cell, hoisted=False)
    hoisted = PlainLoop(ours, cell, hoisted=True)
    source = torch.randint(4, sizes.vocabulary, (sizes.bsz, sizes.source))
    target = torch.randint(4, sizes.vocabulary, (sizes.bsz, sizes.target))
    previous = torch.cat((torch.full((sizes.bsz, 1), words.eos()), target[:, :-1]), 1)
    fairseq = FairseqLSTM(words, sizes)
    products = BareProducts(sizes, CELLS[cell].gates, CELLS[cell].states)
    assert products.flops == training_flops(sizes, CELLS[cell].gates, CELLS[cell].states)

    losses = {
        "ours": lambda: ours(source, None, previous, target=target).loss,
        "plain loop": lambda: loop(source, previous, target),
        "hoisted loop": lambda: hoisted(source, previous, target),
        "fairseq lstm": lambda: fairseq(source, previous, target),
    }
    for peer in ("plain loop", "hoisted loop"):
        torch.testing.assert_close(losses["ours"](), losses[peer](), rtol=1e-5, atol=0.0)

    def step(model: nn.Module, contestant: str) -> None:
        model.zero_grad(set_to_none=True)
        losses[contestant]().backward()

    seconds = interleave(
        {
            "ours": lambda: step(ours, "ours"),
            "plain loop": lambda: step(loop, "plain loop"),
            "hoisted loop": lambda: step(hoisted, "hoisted loop"),
            "fairseq lstm": lambda: step(fairseq, "fairseq lstm"),
            "bare products": products,
        }
    )
    n_words = sizes.bsz * sizes.target
    flops = {"fairseq lstm": fairseq.flops(sizes)}
    print(f"\n{name}, {cell}, three-way tied, {sizes.bsz} rows of {sizes.source} and {sizes.target} words")
    for contestant, times in seconds.items():
        work = flops.get(contestant, products.flops)
        print(
            f"  {contestant:14s} {n_words / statistics.median(times):8.0f} words/s"
            f" {work / n_words / 1e6:7.1f} MFLOP/word {work / statistics.median(times) / 1e9:6.1f} GFLOP/s"
        )
    print(f"  ours over the plain loop      {ratio(seconds, 'plain loop', 'ours')}")
    print(f"  ours over the hoisted loop    {ratio(seconds, 'hoisted loop', 'ours')}")
    print(f"  ours over fairseq's lstm      {ratio(seconds, 'fairseq lstm', 'ours')}  (words/s)")
    print(f"  bare products' time over ours {ratio(seconds, 'bare products', 'ours')}")
