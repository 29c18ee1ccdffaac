"""What attention translation is measured against: a plain loop over time, and the bare matrix products."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import SimpleNamespace

import torch
import torch.nn.functional as F
from fairseq.criterions.label_smoothed_cross_entropy import label_smoothed_nll_loss
from fairseq.data import Dictionary
from fairseq.models.lstm import LSTMDecoder, LSTMEncoder, LSTMModel
from torch import Tensor, nn

from fairseq_tiedemb.models.attention_nmt import LSTMNMTTWWT, AttentionNMTModel, LSTMNMTConfig


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
    """fairseq's `lstm` with a bidirectional encoder, three-way sharing and the loss as its criterion computes it."""

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
        log_probabilities = torch.log_softmax(self(source, lengths, previous)[0], -1)
        return label_smoothed_nll_loss(log_probabilities.flatten(0, 1), target.flatten(), 0.0, 1)[0]

    def training_flops(self, sizes: Sizes) -> int:
        """Products of a training step: 6 a weight and a word, and attention's."""
        source, target, attention = self._multiplications(sizes)
        return 6 * sizes.bsz * (sizes.source * source + sizes.target * (target + attention))

    def decoding_flops(self, sizes: Sizes, beams: int) -> int:
        """The same of a beam search: 2 a weight and a word, target words once a beam."""
        source, target, attention = self._multiplications(sizes)
        return 2 * sizes.bsz * (sizes.source * source + beams * sizes.target * (target + attention))

    def _multiplications(self, sizes: Sizes) -> tuple[int, int, int]:
        """With weights, of a source word and of a target word; and attention's of a target word."""
        source = sum(p.numel() for name, p in self.encoder.named_parameters() if "lstm.weight" in name)
        per_sentence = ("encoder_hidden_proj", "encoder_cell_proj")
        decoder = self.decoder.named_parameters()
        target = sum(p.numel() for name, p in decoder if "weight" in name and not name.startswith(per_sentence))
        return source, target, 2 * sizes.source * 2 * sizes.hidden


def build_ours(words: Dictionary, sizes: Sizes, cell: str) -> AttentionNMTModel:
    """Our model of these sizes, three-way tied."""
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
    return LSTMNMTTWWT.build_model(cfg, task)


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


def weights_per_word(sizes: Sizes, gates: int, states: int) -> tuple[int, int, int]:
    """Multiplications with weights: of a source word, a target word, and a sentence."""
    e, d = sizes.embed, sizes.hidden
    units = 2 * d
    source = 2 * gates * d * (e + d) + units * units
    target = gates * d * (e + d + units + d) + units * d + e * (d + e + units) + e * sizes.vocabulary
    return source, target, units * states * d


def training_flops(sizes: Sizes, gates: int, states: int) -> int:
    """Floating point operations of the products of a training step, in closed form: 6 a weight and a word."""
    source, target, sentence = weights_per_word(sizes, gates, states)
    attention = sizes.bsz * sizes.target * sizes.source * 2 * sizes.hidden * (3 + 1)
    words = sizes.source * source + sizes.target * target + sentence
    return 2 * (3 * sizes.bsz * words + attention)


def decoding_flops(sizes: Sizes, gates: int, states: int, beams: int) -> int:
    """The same of a beam search: 2 a weight and a word, target words once a beam."""
    source, target, sentence = weights_per_word(sizes, gates, states)
    attention = sizes.source * 2 * sizes.hidden * 2
    return 2 * sizes.bsz * (sizes.source * source + sentence + beams * sizes.target * (target + attention))


class BareProducts:
    """The matrix products of one training step and attention's tanh, alone: no step can be faster.

    Every weight has three products: forward, gradient of its input, gradient of itself. Those of recurrent weights are
    one a step forward and for the input's gradient, all others one for all steps. Attention has one product with v and
    three with the annotations.

    Args:
        sizes: sizes of the step.
        gates: gates of the cell.
        states: states of the cell.
    """

    def __init__(self, sizes: Sizes, gates: int, states: int):
        self.flops = 0
        self._runs: list[Callable[[], object]] = []
        e, d, bsz, source, target = sizes.embed, sizes.hidden, sizes.bsz, sizes.source, sizes.target
        units, rows_in, rows_out = 2 * d, bsz * source, bsz * target
        for _ in range(2):
            self._weight(gates * d, e, rows_in, 1)
            self._weight(gates * d, d, bsz, source)
        self._weight(units, units, rows_in, 1)
        self._weight(states * d, units, bsz, 1)
        self._weight(gates * d, e, rows_out, 1)
        self._weight(gates * d, d, bsz, target)
        self._weight(units, d, bsz, target)
        self._weight(gates * d, units, bsz, target)
        self._weight(gates * d, d, bsz, target)
        for width in (d, e, units):
            self._weight(e, width, rows_out, 1)
        self._weight(sizes.vocabulary, e, rows_out, 1)
        self._attention(bsz, source, target, units)

    def _weight(self, outputs: int, inputs: int, rows: int, steps: int) -> None:
        weight, transposed = _random(outputs, inputs), _random(inputs, outputs)
        x, y = _random(rows, inputs), _random(rows, outputs)
        out_y, out_x, out_weight = torch.empty_like(y), torch.empty_like(x), torch.empty_like(weight)
        all_x, all_y = _random(rows * steps, inputs), _random(rows * steps, outputs)
        self._add(steps, lambda: torch.mm(x, transposed, out=out_y), rows * inputs * outputs)
        self._add(steps, lambda: torch.mm(y, weight, out=out_x), rows * inputs * outputs)
        self._add(1, lambda: torch.mm(all_y.t(), all_x, out=out_weight), rows * steps * inputs * outputs)

    def _attention(self, bsz: int, source: int, target: int, units: int) -> None:
        annotations, vector = _random(bsz, source, units), _random(units)
        hidden, weights, contexts = _random(bsz, source, units), _random(bsz, 1, source), _random(bsz, units, 1)
        all_weights, all_contexts = _random(bsz, source, target), _random(bsz, target, units)
        work = bsz * source * units
        self._add(target, lambda: torch.tanh(hidden, out=hidden), 0)
        self._add(target, lambda: torch.mv(hidden.view(-1, units), vector), work)
        self._add(target, lambda: torch.bmm(weights, annotations), work)
        self._add(target, lambda: torch.bmm(annotations, contexts), work)
        self._add(1, lambda: torch.bmm(all_weights, all_contexts), work * target)

    def _add(self, times: int, run: Callable[[], object], multiplications: int) -> None:
        self.flops += 2 * times * multiplications
        self._runs.extend([run] * times)

    def __call__(self) -> None:
        for run in self._runs:
            run()


def _random(*shape: int) -> Tensor:
    return torch.randn(*shape) * 0.05
