"""Base class of decoders that read a stream of text, and the state that they carry along it."""

from typing import Any

from fairseq.models import FairseqIncrementalDecoder
from torch import Tensor

from ..checkpoints.table_names import is_input_table
from ._tables import Tables


class StreamState:
    """States by position in a stream, from which the batch at that position continues.

    Position 0 starts from the model's initial state; other positions need a stored state. States of earlier batches of
    an update are kept, because fairseq repeats them when mixed precision overflows. The caller drops other old states.
    """

    def __init__(self) -> None:
        self.position = 0
        self.states: dict[int, Tensor] = {}

    def at(self, position: int, initial_LBK: Tensor) -> Tensor:
        """The state at which the batch at ``position`` (tokens before it in its rows) starts; at 0 ``initial_LBK``.

        Raises ValueError if that state is unknown, or has another number of rows.
        """
        if position == 0:
            return initial_LBK
        if position not in self.states:
            needs = f"the batch at position {self.position}, where the previous batch ended"
            use = "the batches of --task contiguous_lm in their order"
            use += "; or, after resuming from a checkpoint without a state, --reset-dataloader"
            raise ValueError(f"stream of text: needs {needs}; got position {position}. Use {use}.")
        state = self.states[position]
        if state.shape != initial_LBK.shape:
            needs = f"the {state.size(1)} rows of the previous batch"
            use = "the same batch size from the start of a stream to its end"
            raise ValueError(f"--batch-size: needs {needs}; got {initial_LBK.size(1)}. Use {use}.")
        return state.to(initial_LBK)

    def carry(self, position: int, state_LBK: Tensor) -> None:
        """Stores the state at a position, detached."""
        self.position = position
        self.states.pop(position, None)  # so that it becomes the newest entry
        self.states[position] = state_LBK.detach()

    def forget_all_but_last(self, count: int = 1) -> None:
        """Drops all but the newest ``count`` states."""
        self.states = dict(list(self.states.items())[-count:])


class StreamDecoder(FairseqIncrementalDecoder):
    """Decoder that gives features of the previous tokens and, through an output layer, logits of the next ones.

    If the head computes single probabilities faster than all logits, ``forward`` returns features instead of logits,
    and ``get_normalized_probs`` computes only the probabilities of the targets, as fairseq-eval-lm needs them.
    Subclasses register the P of the output layer, after their own layers.
    """

    def __init__(self, dictionary: Any, tables: Tables):
        super().__init__(dictionary)
        self.embed_tokens = tables.inputs["input"]
        self.output = tables.output
        # Separate streams, because validation between two updates must not change the training state. Not buffers: a
        # checkpoint does not fix the number of rows, and half precision would round a state of token indices.
        self.streams = {True: StreamState(), False: StreamState()}
        self._num_updates: int | None = None  # None until set_num_updates is called

    def features(self, prev_output_tokens: Tensor, incremental_state: Any, stream_position: int | None) -> Tensor:
        """Features (B, T, D); see ``forward`` for the arguments."""
        raise NotImplementedError

    def forward(
        self,
        prev_output_tokens: Tensor,
        encoder_out: None = None,
        incremental_state: dict[str, Any] | None = None,
        src_lengths: Tensor | None = None,
        stream_position: int | None = None,
        features_only: bool = False,
    ) -> tuple[Tensor, dict[str, Any]]:
        """Logits of the next tokens (B, T, V), or features (B, T, D) with ``features_only``.

        With an incremental state only the last column of ``prev_output_tokens`` (B, T) is decoded. ``stream_position``
        is the number of tokens before these in their rows, to carry the state over; None is for a new state. The
        lengths are unused, since padding comes last and does not affect other columns.
        """
        features = self.features(prev_output_tokens, incremental_state, stream_position)
        # Beam search needs all logits, which it divides by a temperature.
        if features_only or (self.output.head.by_target and incremental_state is None):
            return features, {"attn": None, "features": True}
        return self.output_layer(features), {"attn": None}

    def extract_features(self, prev_output_tokens: Tensor, **kwargs: Any) -> tuple[Tensor, dict[str, Any]]:
        return self.forward(prev_output_tokens, features_only=True, **kwargs)

    def output_layer(self, features: Tensor) -> Tensor:
        return self.output.scores(features)

    def get_normalized_probs(
        self, net_output: tuple[Tensor, Any], log_probs: bool, sample: dict[str, Tensor] | None = None
    ) -> Tensor:
        """Probabilities (B, T, V), or log-probabilities, of the output of ``forward``.

        If ``net_output`` holds features and ``sample`` a target, every entry of a row is the probability of that row's
        target. The result is then correct only where the caller gathers the target.
        """
        features, extra = net_output
        # In a search step without incremental state fairseq passes the tensor without `extra`.
        unmarked = extra is None and features.size(-1) != len(self.dictionary)
        if not self.output.head.by_target or not (unmarked or (extra or {}).get("features")):
            return super().get_normalized_probs(net_output, log_probs, sample)
        target = None if sample is None else sample.get("target")
        if target is None:
            log_p = self.output.scores(features)
            return log_p if log_probs else log_p.exp()
        picked = self.output.log_prob(features.flatten(0, 1), target.flatten()).view(*target.shape, 1)
        picked = picked if log_probs else picked.exp()
        return picked.expand(*target.shape, len(self.dictionary))

    def carry(self, position: int, state_LBK: Tensor) -> None:
        """Stores the state after the current batch and drops states that no later batch can need."""
        stream = self.streams[self.training]
        stream.carry(position, state_LBK)
        if not self.training or self._num_updates is None:
            stream.forget_all_but_last(2 if self.training else 1)  # fairseq may repeat the last batch of a training

    def set_num_updates(self, num_updates: int) -> None:
        """Drops old states when an update begins, because fairseq repeats batches only within an update.

        fairseq calls this before every training batch. Without these calls only the last batch can be repeated.
        """
        if num_updates != self._num_updates:
            self._num_updates = num_updates
            self.streams[True].forget_all_but_last()

    def upgrade_state_dict_named(self, state_dict: dict[str, Any], name: str) -> dict[str, Any]:
        """Raises ValueError if a checkpoint and the dictionary differ in the number of tokens."""
        # Rows of the two input tables: the dictionary is the output's, which --output-dictionary-size shortens.
        words, got = (
            sum(len(table) for key, table in tables.items() if is_input_table(key, name))
            for tables in (state_dict, self.state_dict(prefix=f"{name}."))
        )
        if words and words != got:
            needs = f"the {words} words (with fairseq's own) that the model was trained with"
            raise ValueError(f"dict.txt: needs {needs}; got {got}. Use the data folder of the training.")
        return state_dict

    def max_positions(self) -> int:
        """No limit, because there are no position embeddings."""
        return 2**31 - 1
