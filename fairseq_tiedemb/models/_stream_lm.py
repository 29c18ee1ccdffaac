"""Base class of language models that read a stream of text and carry a state along it."""

from functools import cache, partial
from typing import Any

from fairseq.models import FairseqLanguageModel
from torch import Tensor, nn

from ..embedding import OF_METHOD, SharedEmbedding
from ..plan import Plan
from ._counts import start_biases, training_counts
from ._pretrained import load_and_freeze
from ._stream_decoder import StreamDecoder
from ._tables import Tables, build_tables
from ._tied_model import TiedModel


class StreamLM(TiedModel, FairseqLanguageModel):
    """A language model whose decoder is a ``StreamDecoder``."""

    @classmethod
    def build_decoder(cls, cfg: Any, words: Any, plan: Plan, tables: Tables) -> StreamDecoder:
        """Builds the layers around the tables; raises ValueError for options that do not fit."""
        raise NotImplementedError

    @classmethod
    def build_model(cls, cfg: Any, task: Any) -> "StreamLM":
        """Builds the model; raises ValueError as ``plan_of``, ``build_decoder`` and ``load_and_freeze``."""
        plan, words = cls.plan_of(cfg, task), task.target_dictionary
        counts = cache(partial(training_counts, task))
        tables = build_tables(plan, words, counts, projection=nn.Linear)
        model = cls(cls.build_decoder(cfg, words, plan, tables))
        model.reset_parameters(cfg)
        start_biases(model.output, plan.head, cfg.output_bias_init, len(words), counts)
        load_and_freeze(model.decoder.embed_tokens, cfg, "decoder", task.source_dictionary)
        model.start(plan, cfg._name or cls.__name__)
        return model

    def reset_parameters(self, cfg: Any) -> None:
        """Draws parameters uniformly from [-init_range, init_range], as Zaremba et al. (2014) do.

        Parameters of a sharing method keep their own initial values. Tables of a method that divides by the norm get
        rows of norm about 1, a range of sqrt(3 / D).
        """
        for name, parameter in self.named_parameters():
            if not OF_METHOD.search(name):
                nn.init.uniform_(parameter, -cfg.init_range, cfg.init_range)
        for module in self.modules():
            if isinstance(module, SharedEmbedding):
                module.reset_rows_of_norm_one()

    def carried_state(self) -> tuple[int, Tensor]:
        """The position of the training stream, and the state there (L, B, K)."""
        stream = self.decoder.streams[True]
        return stream.position, stream.states[stream.position]

    def restore_state(self, position: int, state_LBK: Tensor) -> None:
        """Sets the training stream to a position and state from ``carried_state``."""
        self.decoder.streams[True].carry(position, state_LBK)
