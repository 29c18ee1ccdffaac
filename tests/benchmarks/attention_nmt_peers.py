"""What attention translation is measured against: loops over time, fairseq's `lstm`, joeynmt, and the step's limit."""

from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from types import SimpleNamespace

import torch
import torch.nn.functional as F
from fairseq.data import Dictionary
from fairseq.models import ARCH_MODEL_REGISTRY
from fairseq.models.lstm import LSTMDecoder, LSTMEncoder, LSTMModel
from torch import Tensor, nn

from fairseq_tiedemb.models.attention_nmt import AttentionNMTModel, LSTMNMTConfig

from .limits import Work, parameter_bytes


@dataclass(frozen=True)
class Sizes:
    """Sizes of a benchmark: e embedding and readout, d hidden, V words, B rows, S source and T target length."""

    embed: int
    hidden: int
    vocabulary: int
    bsz: int
    source: int
    target: int


SIZES = {
    "256/512/10k": Sizes(embed=256, hidden=512, vocabulary=10_000, bsz=72, source=24, target=25),
    "500/1000/90k": Sizes(embed=500, hidden=1000, vocabulary=90_000, bsz=32, source=24, target=25),
}


class FairseqLSTM(LSTMModel):
    """fairseq's `lstm` with a bidirectional encoder, three-way sharing and `F.cross_entropy`."""

    def __init__(self, words: Dictionary, sizes: Sizes):
        table = nn.Embedding(len(words), sizes.embed, words.pad())
        nn.init.uniform_(table.weight, -0.1, 0.1)
        super().__init__(
            LSTMEncoder(words, sizes.embed, sizes.hidden, 1, 0.0, 0.0, True, left_pad=False, pretrained_embed=table),
            LSTMDecoder(
                words, sizes.embed, sizes.hidden, sizes.embed, 1, 0.0, 0.0, True, 2 * sizes.hidden, table, True
            ),
        )

    def loss(self, source: Tensor, previous: Tensor, target: Tensor) -> Tensor:
        """Cross entropy, summed."""
        lengths = torch.full((len(source),), source.size(1))
        scores = self(source, lengths, previous)[0]
        return F.cross_entropy(scores.flatten(0, 1), target.flatten(), ignore_index=1, reduction="sum")


HAS_JOEYNMT = find_spec("joeynmt") is not None


class JoeyNMT(nn.Module):
    """joeynmt's recurrent model with the attention of Bahdanau et al., where it is installed.

    Its decoder has one cell a step, with input feeding, and its readout is as wide as the state: less work than ours in
    the loop, and more for the scores. Source and target words are one table; scores have another, since it ties only
    tables as wide as the readout.
    """

    def __init__(self, words: Dictionary, sizes: Sizes, cell: str):
        from joeynmt.decoders import RecurrentDecoder
        from joeynmt.encoders import RecurrentEncoder

        super().__init__()
        self.embed = nn.Embedding(len(words), sizes.embed, words.pad())
        self.encoder = RecurrentEncoder(rnn_type=cell, hidden_size=sizes.hidden, emb_size=sizes.embed)
        self.decoder = RecurrentDecoder(
            rnn_type=cell, emb_size=sizes.embed, hidden_size=sizes.hidden, encoder=self.encoder, vocab_size=len(words)
        )

    def loss(self, source: Tensor, previous: Tensor, target: Tensor) -> Tensor:
        """Cross entropy, summed."""
        mask = source.ne(1).unsqueeze(1)
        encoded = self.encoder(self.embed(source), mask.sum((1, 2)), mask)
        scores = self.decoder(self.embed(previous), *encoded, src_mask=mask, unroll_steps=previous.size(1))[0]
        return F.cross_entropy(scores.flatten(0, 1), target.flatten(), ignore_index=1, reduction="sum")


def build_ours(words: Dictionary, sizes: Sizes, cell: str, arch: str = "lstm_nmt_twwt") -> AttentionNMTModel:
    """The attention model of this package that ``arch`` names, with a peer's sizes and cell."""
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
    return ARCH_MODEL_REGISTRY[arch].build_model(cfg, task)


class PlainLoop(nn.Module):
    """The model of ``attention_nmt`` as one writes it down, with torch's own cells and the same weights.

    Encoder, decoder, readout and scores run step by step, attention keys are computed once, and autograd does the rest.
    With ``hoisted``, what can leave the loop without a hand-written backward pass has left it: the encoder is torch's
    bidirectional layer, and readout and scores are one product over all steps. Neither knows padding.
    """

    def __init__(self, model: AttentionNMTModel, cell: str, *, hoisted: bool):
        super().__init__()
        encoder, decoder = model.encoder, model.decoder
        hidden, layer, embed = decoder.layer.hidden_size, decoder.layer, decoder.embed_tokens.embedding_dim
        units = encoder.output_units
        self.hoisted, self.is_lstm = hoisted, cell == "lstm"
        make_cell, make_layer = (nn.LSTMCell, nn.LSTM) if self.is_lstm else (nn.GRUCell, nn.GRU)
        self.embed = nn.Embedding.from_pretrained(decoder.output.weight.detach().clone(), freeze=False)
        self.output_bias = nn.Parameter(decoder.output.head.bias.detach().clone())
        self.encoder = make_layer(embed, units // 2, bidirectional=True, batch_first=True)
        self.forward_cell, self.backward_cell = make_cell(embed, units // 2), make_cell(embed, units // 2)
        self.cell1, self.cell2 = make_cell(embed, hidden), make_cell(units, hidden)
        self.query, self.energy = nn.Linear(hidden, units, bias=False), nn.Linear(units, 1)
        self.keys, self.bridge = encoder.keys, encoder.bridge
        self.readout = nn.ModuleList([decoder.readout_state, decoder.readout_input, decoder.readout_context])
        directions = encoder.layers[0].forwards, encoder.layers[0].backwards
        with torch.no_grad():
            for suffix, ours in zip(("_l0", "_l0_reverse"), directions, strict=True):
                _fill(self.encoder, suffix, ours.weight_ih, ours.weight_hh, ours.bias, None)
            for theirs, ours in zip((self.forward_cell, self.backward_cell), directions, strict=True):
                _fill(theirs, "", ours.weight_ih, ours.weight_hh, ours.bias, None)
            _fill(self.cell1, "", layer.weight_input, layer.weight_hidden1, layer.bias_input, None)
            _fill(self.cell2, "", layer.weight_context, layer.weight_hidden2, None, layer.bias_hidden2)
            self.query.weight.copy_(layer.weight_query)
            self.energy.weight.copy_(layer.energy.unsqueeze(0))
            self.energy.bias.copy_(layer.energy_bias)

    def forward(self, source: Tensor, previous: Tensor, target: Tensor) -> Tensor:
        """Cross entropy, summed; the first previous word is a zero vector."""
        annotations = self._encode(self.embed(source))
        keys = self.keys(annotations)
        state = torch.tanh(self.bridge(annotations.mean(1)))
        hidden = tuple(state.chunk(2, 1)) if self.is_lstm else state
        embedded = self.embed(previous)
        embedded = torch.cat((torch.zeros_like(embedded[:, :1]), embedded[:, 1:]), 1)
        outputs = []
        for t in range(previous.size(1)):
            hidden = self.cell1(embedded[:, t], hidden)
            energies = self.energy(torch.tanh(keys + self.query(self._output(hidden)).unsqueeze(1)))
            context = torch.bmm(torch.softmax(energies, 1).transpose(1, 2), annotations).squeeze(1)
            hidden = self.cell2(context, hidden)
            parts = (self._output(hidden), embedded[:, t], context)
            outputs.append(parts if self.hoisted else self._scores(parts))
        if self.hoisted:
            scores = self._scores([torch.stack(part, 1) for part in zip(*outputs, strict=True)])
        else:
            scores = torch.stack(outputs, 1)
        return F.cross_entropy(scores.flatten(0, 1), target.flatten(), reduction="sum")

    def _encode(self, embedded: Tensor) -> Tensor:
        if self.hoisted:
            return self.encoder(embedded)[0]
        steps = range(embedded.size(1))
        outputs: tuple[dict[int, Tensor], ...] = ({}, {})
        for cell, order, output in zip(
            (self.forward_cell, self.backward_cell), (steps, reversed(steps)), outputs, strict=True
        ):
            hidden = None
            for t in order:
                hidden = cell(embedded[:, t], hidden)
                output[t] = self._output(hidden)
        return torch.stack([torch.cat([output[t] for output in outputs], 1) for t in steps], 1)

    def _scores(self, parts: Sequence[Tensor]) -> Tensor:
        features = torch.tanh(sum(layer(part) for layer, part in zip(self.readout, parts, strict=True)))
        return F.linear(features, self.embed.weight, self.output_bias)

    def _output(self, hidden: Tensor | tuple[Tensor, Tensor]) -> Tensor:
        return hidden[0] if self.is_lstm else hidden


def _fill(
    module: nn.Module, suffix: str, ih: Tensor, hh: Tensor, bias_ih: Tensor | None, bias_hh: Tensor | None
) -> None:
    for name, value in (("weight_ih", ih), ("weight_hh", hh), ("bias_ih", bias_ih), ("bias_hh", bias_hh)):
        parameter = getattr(module, name + suffix)
        parameter.copy_(torch.zeros_like(parameter) if value is None else value)


def step_work(sizes: Sizes, gates: int, states: int, parameters: int) -> Work:
    """What a training step of ours has to do, without the optimiser: 6 FLOP a weight and a word, and attention's.

    The encoder's first states and the first previous word are zero. Attention has a product with v and three with the
    annotations, each 2 FLOP a source word, target word and unit.

    Args:
        sizes: sizes of the step.
        gates: gates of the cell.
        states: states of the cell.
        parameters: how many the model has.
    """
    e, d, source, target = sizes.embed, sizes.hidden, sizes.source, sizes.target
    units = 2 * d
    encoder = source * (2 * gates * d * e + units * units) + (source - 1) * 2 * gates * d * d
    embedded = (target - 1) * (gates * d * e + e * e)
    recurrent = target * (gates * d * (d + units + d) + units * d)
    readout = target * (e * (d + units) + e * sizes.vocabulary)
    attention = 4 * target * source * units
    flops = sizes.bsz * (6 * (encoder + units * states * d + embedded + recurrent + readout) + 2 * attention)
    return Work(flops, parameter_bytes(parameters, update=False))
