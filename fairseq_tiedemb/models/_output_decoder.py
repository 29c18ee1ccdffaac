"""What decoders of language models have in common: how they hand on features or scores."""

from typing import Any

from torch import Tensor

from ..outputs import OutputLayer


class OutputDecoder:
    """A decoder with an ``OutputLayer`` as ``output``; stands before fairseq's class among the bases.

    Where the probability of a given word takes less than the scores of all, the decoder returns features in place of
    scores, and ``get_normalized_probs`` computes what is asked for: fairseq-eval-lm hands it the words.
    """

    output: OutputLayer
    dictionary: Any

    def output_layer(self, features: Tensor) -> Tensor:
        """Scores of the words (*, V), or the features (*, H) if what they are to score is asked for later."""
        return features if self.output.head.by_target else self.output.scores(features)

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
        if not self.output.head.by_target:
            return super().get_normalized_probs(net_output, log_probs, sample)  # type: ignore[misc]
        features, target = net_output[0], None if sample is None else sample.get("target")
        if target is None:
            found = self.output.scores(features)
            return found if log_probs else found.exp()
        picked = self.output.log_prob(features.flatten(0, 1), target.flatten()).view(*target.shape, 1)
        picked = picked if log_probs else picked.exp()
        return picked.expand(*target.shape, len(self.dictionary))
