"""What language models have in common that read a stream of text and carry a state over."""

import logging
from typing import Any, ClassVar

from fairseq.models import FairseqLanguageModel
from torch import Tensor, nn

from ..embedding import SharedEmbedding
from ._meaning import SHARING_AND_OUTPUT_LAYER, Choice
from ._options import load_pretrained
from ._output_layer import check_every_option_is_used, start_biases
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
        """Checks the criterion, and that the output layer has a use for each of its options.

        Args:
            criterion: of the training.
            cfg: options of the model.

        Raises:
            ValueError: for a criterion that would train another layer, or an option of another layer.
        """
        super().check_training(criterion, cfg)
        check_every_option_is_used(cfg)

    def start(self, cfg: Any, task: Any) -> None:
        """Sets what the parameters start as, and says what the model shares.

        Raises:
            ValueError: for word vectors that do not fit.
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
        """Draws every parameter uniformly from [-init_range, init_range], as Zaremba et al. (2014) do.

        But for those of a sharing method, which begin as it says.
        Tables of a method that divides by the norm get rows of norm about 1: a range of sqrt(3 / D).
        """
        tables = [module for module in self.modules() if isinstance(module, SharedEmbedding)]
        own = {id(each) for table in tables for each in table.parameters_of_method()}
        for parameter in self.parameters():
            if id(parameter) not in own:
                nn.init.uniform_(parameter, -init_range, init_range)
        for table in tables:
            table.reset_rows_of_norm_one()

    def carried_state(self) -> tuple[int, Tensor]:
        """Where the training stream stands: the position, and the state there (L, B, K)."""
        stream = self.decoder.streams[True]
        return stream.position, stream.states[stream.position]

    def restore_state(self, position: int, state_LBK: Tensor) -> None:
        """Puts the training stream where ``carried_state`` said it stood."""
        self.decoder.streams[True].carry(position, state_LBK)
