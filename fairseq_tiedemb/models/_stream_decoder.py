"""What decoders of language models have in common that read a stream of text and carry a state over."""

from typing import Any

from fairseq.models import FairseqIncrementalDecoder
from torch import Tensor

from ..outputs import OutputLayer
from ..table_names import is_input_table
from ._stream_state import StreamState


class StreamDecoder(FairseqIncrementalDecoder):
    """Features of previous words, and an output layer that scores the next ones.

    Where the probability of a given word takes less than the scores of all, the decoder returns features in place of
    scores, and ``get_normalized_probs`` computes what is asked for: fairseq-eval-lm hands it the words.

    Args:
        dictionary: of the language.
        embed_tokens: input table, or bands of words.
        output: output layer; its P becomes the decoder's, as ``projection``, where a subclass registers it.
    """

    def __init__(self, dictionary: Any, embed_tokens: Any, output: OutputLayer):
        super().__init__(dictionary)
        self.embed_tokens = embed_tokens
        self.output = output
        # Validation comes between two training steps and must not disturb their state. Not buffers: a checkpoint of the
        # model is not tied to a number of rows, and half precision would round a state of words.
        self.streams = {True: StreamState(), False: StreamState()}
        self._num_updates: int | None = None  # until somebody counts them

    def features(
        self,
        prev_output_tokens: Tensor,
        incremental_state: dict[str, Any] | None = None,
        stream_position: int | None = None,
    ) -> Tensor:
        """Features (B, T, D); for the arguments see ``forward``."""
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
        """Scores of the next words (B, T, V), or features (B, T, D).

        Args:
            prev_output_tokens: previous words (B, T); with an incremental state, the last one's scores are wanted.
            encoder_out: none; there is no encoder.
            incremental_state: of generation.
            src_lengths: not needed: padding comes last, where it does no harm.
            stream_position: tokens before these in their rows, if the state is carried over; else it starts anew.
            features_only: return features and not scores.
        """
        features = self.features(prev_output_tokens, incremental_state, stream_position)
        # A search wants the scores of all words, and divides them by its temperature.
        if features_only or (self.output.head.by_target and incremental_state is None):
            return features, {"attn": None, "features": True}
        return self.output_layer(features), {"attn": None}

    def extract_features(self, prev_output_tokens: Tensor, **kwargs: Any) -> tuple[Tensor, dict[str, Any]]:
        """Features (B, T, D), see ``forward``."""
        return self.forward(prev_output_tokens, features_only=True, **kwargs)

    def output_layer(self, features: Tensor) -> Tensor:
        """Scores of the words (*, V)."""
        return self.output.scores(features)

    def get_normalized_probs(
        self, net_output: tuple[Tensor, Any], log_probs: bool, sample: dict[str, Tensor] | None = None
    ) -> Tensor:
        """Probabilities of words (B, T, V), or their logarithms.

        Args:
            net_output: of ``forward``.
            log_probs: whether their logarithms are wanted.
            sample: a batch. If it has a target and the output layer computes single words for less than all, the
                result is the probability of the target for every word: it is right where the target is gathered.
        """
        features, extra = net_output
        # Of one step of a search without a state to go on from, fairseq hands on no more than the tensor.
        unmarked = extra is None and features.size(-1) != len(self.dictionary)
        if not self.output.head.by_target or not (unmarked or (extra or {}).get("features")):
            return super().get_normalized_probs(net_output, log_probs, sample)
        target = None if sample is None else sample.get("target")
        if target is None:
            found = self.output.scores(features)
            return found if log_probs else found.exp()
        picked = self.output.log_prob(features.flatten(0, 1), target.flatten()).view(*target.shape, 1)
        picked = picked if log_probs else picked.exp()
        return picked.expand(*target.shape, len(self.dictionary))

    def carry(self, position: int, state_LBK: Tensor) -> None:
        """Keeps the state that the stream has reached, and those before it that may be wanted again."""
        stream = self.streams[self.training]
        stream.carry(position, state_LBK)
        if not self.training:
            stream.forget_all_but_last()
        elif self._num_updates is None:
            stream.forget_all_but_last(2)  # with which the last batch may still come again

    def set_num_updates(self, num_updates: int) -> None:
        """fairseq calls this before each batch of training; in a new update no batch of the last one comes again.

        Where nobody calls it, only the last batch may come again.
        """
        if num_updates != self._num_updates:
            self._num_updates = num_updates
            self.streams[True].forget_all_but_last()

    def upgrade_state_dict_named(self, state_dict: dict[str, Any], name: str) -> dict[str, Any]:
        """Checks that a checkpoint has as many words as the dictionary.

        Raises:
            ValueError: with both numbers.
        """
        words = sum(len(table) for key, table in state_dict.items() if is_input_table(key, name))
        if words and words != len(self.dictionary):
            raise ValueError(
                f"dict.txt: needs the {words} words (with fairseq's own) that the model was trained with; got "
                f"{len(self.dictionary)}. Use the data folder of the training."
            )
        return state_dict

    def max_positions(self) -> int:
        """No limit: words have no positions."""
        return 2**31 - 1
