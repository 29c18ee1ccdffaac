"""Base class of all models: the loss of the output layer, and checks of shared tables in checkpoints."""

import argparse
import logging
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from fairseq.dataclass import FairseqDataclass
from fairseq.dataclass.utils import gen_parser_from_dataclass
from fairseq.models.fairseq_model import BaseFairseqModel
from torch import Tensor

from ..checkpoints.meaning import SHARING_AND_OUTPUT_LAYER, Choice
from ..embedding import OF_METHOD, SharedEmbedding
from ..head import Head
from ..losses import PLAIN_LOSS, LossOptions, OutputLoss
from ..option_checks import check_ranges, flag_of
from ..outputs import OutputLayer
from ..plan import THREE_WAY, TYING, Family, Plan, check_every_option_is_used, make_plan
from ..precision import exact
from ..regularizers import REGULARIZERS
from ..sharing import SHARING_METHODS
from ..training.extensions import extensions_of
from ._describe import describe

logger = logging.getLogger(__name__)


class TiedModel(BaseFairseqModel):
    """Mixin for a model with an ``OutputLayer``; precedes fairseq's class among the bases.

    The decoder holds the layer as ``output``, or as fairseq's ``output_projection``. Called with ``features_only``, as
    fairseq's Transformer allows, it returns features (B, T, D) instead of logits.
    """

    decoder: Any
    plan: Plan  # who shares what
    # Options beside those of fairseq's class, if that has no dataclass.
    own_options: ClassVar[type[FairseqDataclass] | None] = None
    # What the trainer, tasks and criterions read: see `Extensions`.
    family: ClassVar[Family]
    turned_on: ClassVar[tuple[str, ...]] = ()
    computes_loss: ClassVar[bool] = True
    meaning: ClassVar[tuple[Choice, ...]] = SHARING_AND_OUTPUT_LAYER
    recipe: ClassVar[dict[str, Any]] = {}
    recipe_yields: ClassVar[bool] = False

    @classmethod
    def add_args(cls, parser: argparse.ArgumentParser) -> None:
        """Adds fairseq's options, this package's, the registered sharing methods, and the recipe as defaults.

        training's ``recipes_are_defaults`` sets the options of the recipe's optimiser, criterion and schedule. It comes
        too late if the parser itself imports the plugin; then only this method sets values, unless ``recipe_yields``.
        """
        super().add_args(parser)
        if cls.own_options is not None:
            gen_parser_from_dataclass(parser, cls.own_options())
        for action in parser._actions:
            if action.dest == "sharing_method":  # no choices: the plan's refusal tells of --user-dir
                action.metavar = f"{{{','.join(SHARING_METHODS.names())}}}"
        if not cls.recipe_yields:
            parser.set_defaults(**cls.recipe)

    @classmethod
    def options(cls) -> type:
        """The dataclass of the options."""
        return getattr(cls, "__dataclass", None) or cls.own_options or FairseqDataclass

    @classmethod
    def plan_of(cls, cfg: Any, task: Any) -> Plan:
        """The plan of a model with these options; raises ValueError for options that do not fit."""
        check_ranges(cls.options(), cfg)
        target = getattr(task, "target_dictionary", None) or task.source_dictionary
        return make_plan(cfg, cls.family, target, task.source_dictionary, turned_on=cls.turned_on)

    def start(self, plan: Plan, name: str) -> None:
        """Keeps the plan of a new model, and logs it; ``name`` is the model's architecture."""
        self.plan = plan
        self.end_update()
        logger.info(describe(self, name))

    @torch.no_grad()
    def end_update(self, *, are_copies: bool = False) -> None:
        """Trainer's hook after an update: ``--unit-rows`` divides rows by their norms (Loshchilov et al. 2024, nGPT).

        Raises ValueError for ``--unit-rows`` if the optimizer has the weights in float32, which would undo it.
        """
        if not self.plan.unit_rows:
            return
        if are_copies:
            half = "bf16" if next(self.parameters()).dtype == torch.bfloat16 else "fp16"
            use = f"--memory-efficient-{half}, which --optimizer adam has, or float32"
            raise ValueError(f"--unit-rows: needs weights in one precision; got --{half}. Use {use}.")
        for table in self.modules():
            if isinstance(table, SharedEmbedding) and table.weight.requires_grad:
                table.weight.copy_(F.normalize(exact(table.weight), dim=1))

    @property
    def output(self) -> OutputLayer:
        """The output layer."""
        return getattr(self.decoder, "output", None) or self.decoder.output_projection

    def extract_features(
        self, src_tokens: Tensor, src_lengths: Tensor | None = None, prev_output_tokens: Tensor | None = None, **kw: Any
    ) -> tuple[Tensor, dict[str, Any]]:
        """Features (B, T, D), and the decoder's extra output; the arguments are those of ``net_input``."""
        if prev_output_tokens is None:
            return self.decoder(src_tokens, src_lengths=src_lengths, features_only=True, **kw)
        encoder_out = self.encoder(src_tokens, src_lengths=src_lengths)
        return self.decoder(prev_output_tokens, encoder_out=encoder_out, features_only=True, **kw)

    def forward(
        self, *args: Any, target: Tensor | None = None, loss_options: LossOptions = PLAIN_LOSS, **net_input: Any
    ) -> Any:
        """fairseq's output, or, given target tokens (B, T), their ``OutputLoss`` without the logits in memory.

        The loss is computed here so that wrappers of the model, such as data parallel, see it. Without ``reduce`` it
        has shape (B, T), 0 at positions without a target. The other arguments are those of fairseq's class.
        """
        if target is None:
            return super().forward(*args, **net_input)
        words_N = self.words(target, net_input)  # first: it waits for a GPU, which has nothing to do yet
        features_BTD = self.extract_features(*args, **net_input)[0]
        losses = self.output.loss(_at(features_BTD, words_N), _at(target, words_N), loss_options)
        if loss_options.reduce:
            return losses
        loss, nll_loss = losses
        return OutputLoss(_put(loss, words_N, target), None if nll_loss is None else _put(nll_loss, words_N, target))

    def log_prob(self, target: Tensor, **net_input: Any) -> Tensor:
        """Log-probabilities of the target tokens (B, T), 0 for padding; ``net_input`` as in ``forward``."""
        features_BTD = self.extract_features(**net_input)[0]
        words_N = self.words(target, net_input)
        return _put(self.output.log_prob(_at(features_BTD, words_N), _at(target, words_N)), words_N, target)

    def tally(self, target: Tensor, net_input: dict[str, Any]) -> dict[str, Tensor]:
        """Sums over the targets (B, T) to log beside the loss, by name; see ``Head.tally``."""
        if type(self.output.head).tally is Head.tally:
            return {}  # without waiting for a GPU
        return self.output.head.tally(_at(target, self.words(target, net_input)))

    def words(self, target: Tensor, net_input: dict[str, Any]) -> Tensor:
        """Places (N,) of the tokens to predict among all B * T positions; waits for a GPU."""
        return self.is_word(target, net_input).flatten().nonzero().squeeze(1)

    def is_word(self, target: Tensor, net_input: dict[str, Any]) -> Tensor:
        """Mask of the positions (B, T) with a token to predict.

        A language model knows its row lengths and predicts a literal ``<pad>`` in the text. Translation batches do not
        hold the target lengths; like fairseq, it then skips ``<pad>``.
        """
        lengths = net_input.get("src_lengths")
        if hasattr(self, "encoder") or lengths is None:
            return target.ne(self.decoder.dictionary.pad())
        lengths = lengths.to(target.device)
        lengths = F.pad(lengths, (0, len(target) - len(lengths)))  # rows added by --pad-to-fixed-bsz have length 0
        return torch.arange(target.size(1), device=target.device) < lengths.unsqueeze(1)

    def check_training(self, criterion: Any, cfg: Any) -> None:
        """Raises ValueError, before the first update, if the criterion would not train the output layer's own loss.

        fairseq's criterions train on all logits, so a head with a surrogate loss would be trained as a full softmax.
        Options in ``cfg`` that the output layer ignores are refused, too.
        """
        head = self.output.head
        if head.loss_is_its_own and not extensions_of(criterion).takes_the_models_loss:
            needs = f"tied_cross_entropy with {head.flag}"
            got = f"{type(criterion).__name__}, which trains on the logits of all words"
            raise ValueError(f"--criterion: needs {needs}; got {got}. Use --criterion tied_cross_entropy.")
        for name in REGULARIZERS:
            strength = self.recipe.get(name)
            if strength and not hasattr(criterion, name):
                flag = f"--criterion {type(criterion).__name__}"
                without = f"{flag_of(name)} {strength}, which belongs to the model's recipe"
                logger.warning(f"{flag}: trains without {without}. Use --criterion tied_cross_entropy.")
        check_every_option_is_used(self.options(), cfg, self.family, self.plan.head)
        task = getattr(getattr(criterion, "task", None), "args", None)
        if getattr(task, "add_bos_token", False) and not head.scores_every_token:
            needs = "--output-layer softmax, since other layers give a token that the text lacks probability 0"
            got = f"--output-layer {self.plan.head}"
            raise ValueError(f"--add-bos-token: needs {needs}; got {got}. Leave it out, or use softmax.")

    def upgrade_state_dict_named(self, state_dict: dict[str, Any], name: str) -> None:
        """fairseq's upgrade of old checkpoints; raises ValueError for two different tables where the model has one."""
        super().upgrade_state_dict_named(state_dict, name)
        prefix = f"{name}." if name else ""
        own = self.state_dict(prefix=prefix)
        for key in [key for key in state_dict if "embed_tokens.embeddings." in key and OF_METHOD.search(key)]:
            if key not in own:  # what bands that only embed had before 0.1.36: nothing trained it
                del state_dict[key]
        first: dict[int, str] = {}
        for key, parameter in self.named_parameters(remove_duplicate=False):
            known = first.setdefault(id(parameter), key)
            entry, other = state_dict.get(prefix + key), state_dict.get(prefix + known)
            if known == key or entry is None or other is None:
                continue
            same_shape = entry.shape == other.shape
            if not (same_shape and torch.allclose(entry, other.to(entry), rtol=0.0, atol=0.0, equal_nan=True)):
                one_side = key.partition(".")[0] == known.partition(".")[0]
                flag, needs = flag_of(TYING if one_side else THREE_WAY), f"one table for {known} and {key}"
                use = "the options of its training, or fairseq-tiedemb tie"
                raise ValueError(f"{flag}: needs a checkpoint with {needs}; got two that differ. Use {use}.")


def _at(values_BTX: Tensor, places_N: Tensor) -> Tensor:
    """The values (N, ...) at places among all positions; the gradient of a mask's selection would be slower."""
    return values_BTX.flatten(0, 1).index_select(0, places_N)


def _put(values_N: Tensor, places_N: Tensor, like_BT: Tensor) -> Tensor:
    """The values at their places (B, T), and 0 elsewhere."""
    zeros = torch.zeros_like(like_BT, dtype=values_N.dtype).flatten()
    return zeros.index_copy(0, places_N, values_N).view(like_BT.shape)
