"""Word embeddings trained on pairs of neighbouring words."""

import logging
import os
from dataclasses import dataclass
from typing import Any, Optional

import numpy as np
import torch
from fairseq.data import Dictionary, iterators
from fairseq.data.indexed_dataset import get_available_dataset_impl
from fairseq.dataclass import ChoiceEnum, FairseqDataclass
from fairseq.distributed.utils import get_data_parallel_world_size
from fairseq.tasks import FairseqTask, register_task
from omegaconf import II, MISSING

from ..optim.row_sgd import FairseqRowSGD
from ..option_checks import Range, check_ranges, option
from ..training.extensions import extensions_of
from ._pairs import WordPairs, keep_probabilities
from ._streams import TokenStream, epoch_batches, open_stream

logger = logging.getLogger(__name__)


@dataclass
class WordPairsConfig(FairseqDataclass):
    """Options of ``word_pairs``, with word2vec.c's defaults."""

    data: str = option(MISSING, "folder of fairseq-preprocess --only-source")
    window: int = option(
        5,
        "largest distance between a centre and its contexts",
        # Distances in a window are numbers in memory, for every word of a batch.
        needs=Range("1 to 10,000", "5, say", at_least=1, at_most=10_000),
    )
    subsampling: float = option(
        1e-3,
        "randomly drop occurrences of words with a larger share of the text; 0 keeps all",
        needs=Range("a number in [0, 1)", "1e-3, say", at_least=0, below=1),
    )
    min_count: int = option(
        5, "ignore words with fewer occurrences in the training text", needs=Range("at least 1", "5, say", at_least=1)
    )
    dataset_impl: Optional[ChoiceEnum(get_available_dataset_impl())] = II("dataset.dataset_impl")  # type: ignore[valid-type]
    train_subset: str = II("dataset.train_subset")
    seed: int = II("common.seed")
    clip_norm: float = II("optimization.clip_norm")
    update_freq: list[int] = II("optimization.update_freq")


@register_task("word_pairs", dataclass=WordPairsConfig)
class WordPairsTask(FairseqTask):
    """Predicts words from neighbouring words, with a word2vec model.

    A batch is the pairs in ``--max-tokens`` tokens of the text; see ``WordPairs``. The vocabulary is the words with at
    least ``--min-count`` occurrences in the training text. Rarer words, ``<unk>`` and ``</s>`` are removed before
    windows are drawn, and no window crosses the end of a sentence. Pairs depend only on seed, epoch and
    ``--max-tokens``, not on data workers or interruptions. Other splits have the same pairs for every seed and epoch.

    Words are counted in the binarised training text, and checkpoints hold the counts.

    Source: Mikolov et al. 2013 ("Distributed representations"), section 2.3 (subsampling).
    """

    def __init__(self, cfg: WordPairsConfig, dictionary: Dictionary):
        super().__init__(cfg)
        check_ranges(WordPairsConfig, cfg)
        self.dictionary = dictionary
        self.predicts_centre = False
        self.state.add_factory("word_counts", self._count)

    @classmethod
    def setup_task(cls, cfg: WordPairsConfig, **kwargs: Any) -> "WordPairsTask":
        dictionary = Dictionary.load(os.path.join(cfg.data.split(os.pathsep)[0], "dict.txt"))
        logger.info(f"dictionary: {len(dictionary):,} types")
        return cls(cfg, dictionary)

    source_dictionary = target_dictionary = property(lambda self: self.dictionary)

    @property
    def word_counts(self) -> np.ndarray:
        """Counts of the words in the training text (V,); 0 for left-out words."""
        counts = self.state.word_counts.numpy()
        return np.where(counts >= self.cfg.min_count, counts, 0)

    def _count(self) -> torch.Tensor:
        streams = (self._stream(folder, self.cfg.train_subset, True) for folder in self.cfg.data.split(os.pathsep))
        return torch.from_numpy(sum(stream.word_counts() for stream in streams))

    def _stream(self, folder: str, split: str, combine: bool) -> TokenStream:
        return open_stream(os.path.join(folder, split), self.dictionary, impl=self.cfg.dataset_impl, combine=combine)

    def build_model(self, cfg: Any, from_checkpoint: bool = False) -> Any:
        """Builds the model; raises ValueError for another family, or if fewer than two words are frequent enough."""
        if (frequent := np.count_nonzero(self.word_counts)) < 2:
            needs = f"two words or more that occur {self.cfg.min_count} times in the training text"
            raise ValueError(f"--min-count: needs {needs}; got {frequent}. Use a smaller number.")
        model = super().build_model(cfg, from_checkpoint)
        if extensions_of(model).predicts_centre is None:
            needs, got = "a model of word2vec's family", type(model).__name__
            raise ValueError(f"--task word_pairs: needs {needs}; got {got}. Use --arch word2vec_skipgram.")
        self.predicts_centre = model.predicts_centre
        return model

    def load_dataset(self, split: str, epoch: int = 1, combine: bool = False, **kwargs: Any) -> None:
        """Loads the text of a split; raises as ``open_stream``."""
        folders = self.cfg.data.split(os.pathsep)
        self.datasets[split] = self._stream(folders[(epoch - 1) % len(folders)], split, combine)

    def get_batch_iterator(
        self, dataset: TokenStream, max_tokens: int | None = None, max_sentences: int | None = None, **options: Any
    ) -> iterators.EpochBatchIterator:
        """Batches of pairs.

        Raises ValueError without ``--max-tokens``, the batch size in tokens, and if no batch has pairs. One with pairs
        is the first, which fairseq gives to processes without data.
        """
        if max_tokens is None or max_tokens < 1 or max_sentences is not None:
            needs = "a number of text tokens per batch, and no --batch-size, with --task word_pairs"
            got = f"--max-tokens {max_tokens} and --batch-size {max_sentences}"
            raise ValueError(f"--max-tokens: needs {needs}; got {got}. Use --max-tokens 4000, say.")
        cfg, keep = self.cfg, keep_probabilities(self.word_counts, self.cfg.subsampling)
        seed = cfg.seed if dataset.split == cfg.train_subset else 0
        pairs = WordPairs(
            dataset, keep, window=cfg.window, max_tokens=max_tokens, seed=seed, predicts_centre=self.predicts_centre
        )
        # Resumed training starts its data workers before fairseq sets the dataset's epoch.
        pairs.set_epoch(options.get("epoch", 1))
        batches = [[batch] for batch in range(len(pairs))]
        first = next((batch for (batch,) in batches if pairs[batch]["ntokens"]), None)
        if first is None:
            got = f"none in {dataset.split} with --max-tokens {max_tokens} and --subsampling {cfg.subsampling}"
            use = "--max-tokens 4000 and --subsampling 1e-3, say, or a text with words of the training"
            raise ValueError(f"--max-tokens: needs pairs of words; got {got}. Use {use}.")
        batches.insert(0, batches.pop(first))
        return epoch_batches(pairs, batches, shuffles=True, **options)

    def build_generator(self, *_args: Any, **_options: Any) -> Any:
        """Raises ValueError, for fairseq-generate, -interactive and -eval-lm: vectors of words translate no text."""
        needs, use = "a task whose models generate or score text", "fairseq-validate, or fairseq-tiedemb similarity"
        raise ValueError(f"--task: needs {needs}; got word_pairs. Use {use}.")

    eval_lm_dataloader = build_generator

    def train_step(
        self, sample: Any, model: Any, criterion: Any, optimizer: Any, *args: Any, ignore_grad: bool = False, **kw: Any
    ) -> Any:
        """fairseq's step, with sparse gradients if the optimiser takes them, or without any; see ``Word2Vec``."""
        # Several processes average dense gradients.
        sparse = extensions_of(optimizer).takes_sparse_gradients and get_data_parallel_world_size() == 1
        # What is learned in steps is plain SGD, and has no gradient to clip, to average, or to ignore.
        in_steps = sparse and type(optimizer) is FairseqRowSGD and not ignore_grad
        in_steps = in_steps and not self.cfg.clip_norm and set(self.cfg.update_freq) == {1}
        set_sparse_gradients = extensions_of(model).set_sparse_gradients
        set_sparse_gradients(sparse, optimizer.get_lr() if in_steps else None)
        try:
            return super().train_step(sample, model, criterion, optimizer, *args, ignore_grad=ignore_grad, **kw)
        finally:
            set_sparse_gradients(sparse)
