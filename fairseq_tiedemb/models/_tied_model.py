"""What all our models have in common: the loss of their output layer, and one table under all its names."""

import argparse
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from fairseq.models.fairseq_model import BaseFairseqModel
from torch import Tensor, nn

from ..losses import PLAIN_LOSS, LossOptions, OutputLoss
from ..outputs import OutputLayer
from ..sharing import sharing_method_names
from ._meaning import SHARING, Choice


class TiedModel(BaseFairseqModel):
    """A model with an ``OutputLayer``; stands before fairseq's class among the bases.

    A family's decoder returns features (B, T, D) and not scores if it is called with ``features_only``, as fairseq's
    Transformer does, and holds the layer: as ``output``, or where fairseq has its ``output_projection``.

    Attributes:
        recipe: defaults of all of fairseq's options that the preset's training needs, by name; empty if it brings none.
        recipe_yields: whether nothing of the recipe is left where the command names an optimiser: commands from before
            the preset had one mean what they meant.
    """

    computes_loss: ClassVar[bool] = True
    meaning: ClassVar[tuple[Choice, ...]] = SHARING
    recipe: ClassVar[dict[str, Any]] = {}
    recipe_yields: ClassVar[bool] = False

    @classmethod
    def add_args(cls, parser: argparse.ArgumentParser) -> None:
        """fairseq's, with the sharing methods that are registered by now, and the recipe as the command's defaults.

        The options of the recipe's optimiser, criterion and schedule come of compat's ``recipes_are_defaults``, which
        is too late where it is the parser that imports the plugin: there this sets the recipe's numbers, unless
        they depend on the command.
        """
        super().add_args(parser)
        for action in parser._actions:
            if action.dest == "sharing_method":
                action.choices = sharing_method_names()
        if not cls.recipe_yields:
            parser.set_defaults(**cls.recipe)

    decoder: Any

    @property
    def output(self) -> OutputLayer:
        """The output layer."""
        return getattr(self.decoder, "output", None) or self.decoder.output_projection

    @property
    def projection(self) -> nn.Linear | None:
        """P, which projection regularization holds down."""
        return self.output.projection

    def extract_features(
        self,
        src_tokens: Tensor,
        src_lengths: Tensor | None = None,
        prev_output_tokens: Tensor | None = None,
        **kwargs: Any,
    ) -> tuple[Tensor, dict[str, Any]]:
        """Features (B, T, D), and what else the decoder returns; the arguments are those of ``net_input``."""
        if prev_output_tokens is None:
            return self.decoder(src_tokens, src_lengths=src_lengths, features_only=True, **kwargs)
        encoder_out = self.encoder(src_tokens, src_lengths=src_lengths)
        return self.decoder(prev_output_tokens, encoder_out=encoder_out, features_only=True, **kwargs)

    def forward(
        self, *args: Any, target: Tensor | None = None, loss_options: LossOptions = PLAIN_LOSS, **net_input: Any
    ) -> Any:
        """What fairseq's class computes, or the loss of ``target`` without ever holding the scores.

        Args:
            args: of fairseq's class.
            target: right words (B, T); then the loss is returned, an ``OutputLoss``, computed here so that wrappers of
                the model (data parallel) see all of it.
            loss_options: of the loss. Without ``reduce``, it is (B, T), with 0 where no word is to be predicted.
            net_input: of fairseq's class.
        """
        if target is None:
            return super().forward(*args, **net_input)
        features_BTD = self.extract_features(*args, **net_input)[0]
        is_word = self.is_word(target, net_input)
        losses = self.output.loss(features_BTD[is_word], target[is_word], loss_options)
        if loss_options.reduce:
            return losses

        def in_place(found: Tensor) -> Tensor:
            return torch.zeros_like(target, dtype=found.dtype).masked_scatter(is_word, found)

        return OutputLoss(in_place(losses.loss), None if losses.nll_loss is None else in_place(losses.nll_loss))

    def log_prob(self, target: Tensor, **net_input: Any) -> Tensor:
        """Logarithms of the probabilities of the target words (B, T), 0 for padding, without the scores of all words.

        Args:
            target: right words (B, T).
            net_input: as for ``forward``.
        """
        features_BTD = self.extract_features(**net_input)[0]
        is_word = self.is_word(target, net_input)
        found = self.output.log_prob(features_BTD[is_word], target[is_word])
        return torch.zeros_like(target, dtype=found.dtype).masked_scatter(is_word, found)

    def tally(self, target: Tensor, net_input: dict[str, Any]) -> dict[str, Tensor]:
        """Sums over the target words that are to be logged beside the loss, by name: of heads that have some.

        Args:
            target: right words (B, T).
            net_input: as for ``forward``.
        """
        return self.output.head.tally(target[self.is_word(target, net_input)])

    def is_word(self, target: Tensor, net_input: dict[str, Any]) -> Tensor:
        """Where the target (B, T) has a word to predict.

        A language model knows how long its rows are, and predicts a literal ``<pad>`` in the text like any other word;
        for translation, whose batches do not say how long a target is, fairseq neither counts nor predicts it.
        """
        lengths = net_input.get("src_lengths")
        if hasattr(self, "encoder") or lengths is None:
            return target.ne(self.decoder.dictionary.pad())
        lengths = lengths.to(target.device)
        lengths = F.pad(lengths, (0, len(target) - len(lengths)))  # without those of the rows of --pad-to-fixed-bsz
        return torch.arange(target.size(1), device=target.device) < lengths.unsqueeze(1)

    def check_training(self, criterion: Any, cfg: Any) -> None:
        """Checks that a criterion trains the output layer as it is meant: ``compat`` asks before the first update.

        fairseq's criterions see scores of all words; by these an output layer that is trained by something else, or by
        a few words alone, would be trained as a full softmax.

        Args:
            criterion: of the training.
            cfg: options of the model.

        Raises:
            ValueError: for another criterion than this package's with such a layer.
        """
        head = self.output.head
        if head.loss_is_its_own and not getattr(criterion, "takes_the_models_loss", False):
            raise ValueError(
                f"--criterion: needs tied_cross_entropy with {head.flag}; got {type(criterion).__name__}, which trains "
                "the scores of all words. Use --criterion tied_cross_entropy."
            )

    def upgrade_state_dict_named(self, state_dict: dict[str, Any], name: str) -> None:
        """fairseq's upgrade of old checkpoints; refuses those that have two tables where the model has one.

        Raises:
            ValueError: naming both entries.
        """
        super().upgrade_state_dict_named(state_dict, name)
        prefix = f"{name}." if name else ""
        first: dict[int, str] = {}
        for key, parameter in self.named_parameters(remove_duplicate=False):
            known = first.setdefault(id(parameter), key)
            entry, other = state_dict.get(prefix + key), state_dict.get(prefix + known)
            if known != key and entry is not None and other is not None and not torch.equal(entry, other):
                raise ValueError(
                    f"{self.asks_for_sharing(known, key)}: needs a checkpoint with one table for {known} and {key}; "
                    "got two that differ. Use the options of its training."
                )

    def asks_for_sharing(self, first: str, second: str) -> str:
        """The flag that makes two entries one, for messages."""
        sides = {key.partition(".")[0] for key in (first, second)}
        return "--share-all-embeddings" if len(sides) > 1 else "--share-decoder-input-output-embed"
