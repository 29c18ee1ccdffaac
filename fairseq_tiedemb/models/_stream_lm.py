"""Base class of language models that read a stream of text and carry a state along it."""

import logging
from typing import Any, ClassVar

from fairseq.models import FairseqLanguageModel
from torch import Tensor, nn

from ..checkpoints.meaning import SHARING_AND_OUTPUT_LAYER, Choice
from ..embedding import SharedEmbedding
from ._options import load_pretrained
from ._output_layer import SOFTMAX, check_every_option_is_used, start_biases
from ._sharing import describe
from ._tied_model import TiedModel

logger = logging.getLogger(__name__)


class StreamLM(TiedModel, FairseqLanguageModel):
    """A language model whose decoder is a ``StreamDecoder``.

    Attributes:
        ties: whether the preset ties its embeddings, whatever the flags say.
    """

    meaning: ClassVar[tuple[Choice, ...]] = SHARING_AND_OUTPUT_LAYER
    ties: ClassVar[bool] = False

    def check_training(self, criterion: Any, cfg: Any) -> None:
        """Raises ValueError if the criterion does not suit the output layer or an option in ``cfg`` is ignored."""
        super().check_training(criterion, cfg)
        check_every_option_is_used(cfg)
        task = getattr(getattr(criterion, "task", None), "args", None)
        if getattr(task, "add_bos_token", False) and cfg.output_layer != SOFTMAX:
            raise ValueError(
                "--add-bos-token: needs --output-layer softmax, since other layers give a token that the text lacks "
                f"probability 0; got --output-layer {cfg.output_layer}. Leave it out, or use softmax."
            )

    def start(self, cfg: Any, task: Any) -> None:
        """Initialises the parameters, loads pretrained embeddings, and logs what the model shares.

        Raises:
            ValueError: as ``load_pretrained``.
        """
        self.reset_parameters(cfg.init_range)
        start_biases(cfg, task, self.output)
        table = self.decoder.embed_tokens
        if cfg.decoder_embed_path:
            load_pretrained(table, cfg.decoder_embed_path, task.target_dictionary, flag="--decoder-embed-path")
        if cfg.decoder_freeze_embed:
            table.weight.requires_grad_(False)
        logger.info(describe(self, cfg._name or type(self).__name__))

    def reset_parameters(self, init_range: float) -> None:
        """Draws parameters uniformly from [-init_range, init_range], as Zaremba et al. (2014) do.

        Parameters of a sharing method keep their own initial values. Tables of a method that divides by the norm get
        rows of norm about 1, a range of sqrt(3 / D).
        """
        tables = [module for module in self.modules() if isinstance(module, SharedEmbedding)]
        own = {id(parameter) for table in tables for parameter in table.parameters_of_method()}
        for parameter in self.parameters():
            if id(parameter) not in own:
                nn.init.uniform_(parameter, -init_range, init_range)
        for table in tables:
            table.reset_rows_of_norm_one()

    def carried_state(self) -> tuple[int, Tensor]:
        """The position of the training stream, and the state there (L, B, K)."""
        stream = self.decoder.streams[True]
        return stream.position, stream.states[stream.position]

    def restore_state(self, position: int, state_LBK: Tensor) -> None:
        """Sets the training stream to a position and state from ``carried_state``."""
        self.decoder.streams[True].carry(position, state_LBK)
