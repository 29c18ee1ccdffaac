"""Language modelling over one stream of text, with a state that carries over from batch to batch."""

from dataclasses import dataclass
from typing import Any, Optional

import torch
import torch.distributed
from fairseq.data import FairseqDataset, iterators
from fairseq.distributed.utils import get_global_rank, get_global_world_size
from fairseq.tasks import register_task
from fairseq.tasks.language_modeling import LanguageModelingConfig, LanguageModelingTask
from omegaconf import II

from ..option_checks import Range, check_value, flag_of, option
from ..training.extensions import extensions_of
from ._streams import StreamRows, TokenStream, epoch_batches, open_stream

# Options of `language_modeling` that change its samples, with their neutral values.
MADE_FOR_SAMPLES: dict[str, Any] = {
    "self_target": False,
    "past_target": False,
    "add_bos_token": False,
    "output_dictionary_size": -1,
    "shorten_method": "none",
    "pad_to_fixed_length": False,
    "pad_to_fixed_bsz": False,
    # fairseq-eval-lm would score a word piece at the end of a batch as a word.
    "post_process": None,
}
RANGES = {
    "batch_size": Range("at least 1 row", "20, say", at_least=1),
    "tokens_per_sample": Range("at least 1 token of a row in a batch", "20, say", at_least=1),
}


@dataclass
class ContiguousLMConfig(LanguageModelingConfig):
    """Options of ``contiguous_lm``: those of fairseq's ``language_modeling``, and the lengths of its batches."""

    random_length: bool = option(
        False,
        "train on batches of random lengths about --tokens-per-sample, 5 or more, drawn anew in every epoch (Merity et "
        "al. 2018)",
    )
    post_process: Optional[str] = II("common_eval.post_process")
    train_subset: str = II("dataset.train_subset")


@register_task("contiguous_lm", dataclass=ContiguousLMConfig)
class ContiguousLMTask(LanguageModelingTask):
    """Language modelling over one stream of text, with a state that carries over from batch to batch.

    A split is one stream of tokens, cut into ``--batch-size`` rows per process. A batch holds ``--tokens-per-sample``
    tokens of every row and continues the previous batch. The model carries its detached state over: the state of
    recurrent layers, or the last tokens of an n-gram. The state is reset in every epoch and split. Every token is
    predicted exactly once: the first token of the text from ``</s>``, other tokens from the previous token and the
    state. fairseq-eval-lm reads one row unless ``--batch-size`` is given.

    With ``--random-length`` training batches have random lengths; a loss that is summed over a row's tokens, as with
    ``--sentence-avg``, weighs each by its length, as Merity et al.'s learning rate does.

    With ``--sample-break-mode eos`` a sample is a sentence with a new state, as in fairseq's ``language_modeling``.

    Checkpoints hold the states of all processes, so resuming on a CPU in float32 is bit-exact. Options of
    ``language_modeling`` that conflict with a stream are refused.

    Source: Zaremba et al. 2014, section 4.1 (rows, unroll, state carried over).
    """

    def __init__(self, args: Any, dictionary: Any, output_dictionary: Any = None, targets: Any = None):
        super().__init__(args, dictionary, output_dictionary, targets)
        self._carried: dict[str, Any] = {}
        self._gathered: dict[str, Any] | None = None
        self._restored: dict[str, Any] = {}
        self._seed_of_lengths: int | None = None
        self._skips_padding = ""  # name of the criterion, if it takes a word <pad> for padding

    @classmethod
    def setup_task(cls, args: Any, **kwargs: Any) -> "ContiguousLMTask":
        """Checks the options, as the class says, and loads the dictionary."""
        if str(args.sample_break_mode) not in ("none", "eos"):
            needs = "none (one stream) or eos (sentences) with --task contiguous_lm"
            use = "--task language_modeling for other samples"
            raise ValueError(f"--sample-break-mode: needs {needs}; got {args.sample_break_mode}. Use {use}.")
        for name, bounds in RANGES.items():
            check_value(flag_of(name), getattr(args, name), bounds)
        if str(args.sample_break_mode) == "none":
            least = Range("10 or more with --random-length, whose batches have 5 or more", "20, say", at_least=10)
            check_value("--tokens-per-sample", args.tokens_per_sample if args.random_length else None, least)
            for name, neutral in MADE_FOR_SAMPLES.items():
                value = getattr(args, name, neutral)
                if value is not None and str(value) != str(neutral):
                    needs = "to be left out with one stream of text"
                    use = "--sample-break-mode eos, or --task language_modeling"
                    raise ValueError(f"{flag_of(name)}: needs {needs}; got {value}. Use {use}.")
        return super().setup_task(args, **kwargs)

    @property
    def one_stream(self) -> bool:
        """Whether the text is read as one stream instead of sentences."""
        return str(self.args.sample_break_mode) == "none"

    def build_model(self, cfg: Any, from_checkpoint: bool = False) -> torch.nn.Module:
        """Builds the model; raises ValueError if it cannot carry a state over."""
        model = super().build_model(cfg, from_checkpoint)
        if self.one_stream and extensions_of(model).carried_state is None:
            needs = "a language model of fairseq_tiedemb that carries its state over"
            use = "--task language_modeling, or --arch tied_lstm_lm"
            raise ValueError(f"--task contiguous_lm: needs {needs}; got {type(model).__name__}. Use {use}.")
        return model

    def build_criterion(self, cfg: Any) -> Any:
        """fairseq's, remembered if it takes a word ``<pad>`` for padding."""
        criterion = super().build_criterion(cfg)
        self._skips_padding = "" if extensions_of(criterion).takes_the_models_loss else cfg._name
        return criterion

    def load_dataset(self, split: str, epoch: int = 1, combine: bool = False, **kwargs: Any) -> None:
        """Loads a split as one stream, or as sentences.

        Raises ValueError as ``TokenStream``; for a word ``<pad>``, which the criterion would count and not predict; for
        ``--random-length`` with sentences.
        """
        paths = self.args.data.split(":")
        path = f"{paths[(epoch - 1) % len(paths)]}/{split}"
        stream = open_stream(path, self.dictionary, impl=self.args.dataset_impl, combine=combine)
        if self._skips_padding and (count := stream.counts()[self.dictionary.pad()]):
            text = "a text with a word <pad>, which fairseq's criterions count and do not predict"
            got = f"{self._skips_padding}, and {count:,} of it in split {split}"
            raise ValueError(f"--criterion: needs tied_cross_entropy for {text}; got {got}. Use that.")
        if self.one_stream:
            self.datasets[split] = stream
        elif getattr(self.args, "random_length", False) and split == self.args.train_subset:
            needs = "one stream of text, --sample-break-mode none"
            raise ValueError(f"--random-length: needs {needs}; got {self.args.sample_break_mode}. Leave it out.")
        else:
            super().load_dataset(split, epoch, combine, **kwargs)

    def get_batch_iterator(
        self, dataset: FairseqDataset, max_tokens: int | None = None, max_sentences: int | None = None, **options: Any
    ) -> iterators.EpochBatchIterating:
        """Batches in text order for a stream, else fairseq's; raises ValueError for sizes that do not fit a stream."""
        if not isinstance(dataset, TokenStream):
            return super().get_batch_iterator(dataset, max_tokens, max_sentences, **options)
        if max_tokens is not None and max_sentences is None:
            needs = "the number of rows that the text is cut into"
            use = "--batch-size 20, say, and --tokens-per-sample for the length of a batch"
            raise ValueError(f"--batch-size: needs {needs}; got --max-tokens {max_tokens} alone. Use {use}.")
        rows_here, chunk = max_sentences or 1, self.args.tokens_per_sample
        if max_tokens is not None and max_tokens < rows_here * chunk:
            flags, use = "--max-tokens, of validation --max-tokens-valid", "smaller ones, or leave it out"
            sizes = f"{rows_here} rows (--batch-size, --batch-size-valid) of {chunk} tokens (--tokens-per-sample)"
            needs = f"at least {rows_here * chunk} in split {dataset.split}, the tokens of {sizes}"
            raise ValueError(f"{flags}: needs {needs}; got {max_tokens}. Use {use}.")
        num_shards, seed, epoch = (options.get(name, 1) for name in ("num_shards", "seed", "epoch"))
        is_random = getattr(self.args, "random_length", False) and dataset.split == self.args.train_subset
        if is_random:
            self._seed_of_lengths = seed
        rows = StreamRows(dataset, rows_here * num_shards, chunk, random_by=(seed, epoch) if is_random else None)
        return epoch_batches(rows, rows.batches(num_shards), shuffles=False, **options)

    def eval_lm_dataloader(
        self, dataset: FairseqDataset, *, batch_size: int | None = None, context_window: int = 0, **kwargs: Any
    ) -> Any:
        """Batches for fairseq-eval-lm.

        Raises ValueError for ``--context-window`` with one stream, since the state carries the context; for several
        processes, because fairseq-eval-lm prints the first process's perplexity only.
        """
        if self.one_stream and context_window > 0:
            needs = "0 with one stream of text, where a state carries the context"
            raise ValueError(f"--context-window: needs {needs}; got {context_window}. Leave it out.")
        if (world_size := get_global_world_size()) > 1:
            needs, got = "1 for fairseq-eval-lm, which prints the first process's perplexity only", world_size
            raise ValueError(f"--distributed-world-size: needs {needs}; got {got}. Use --distributed-world-size 1.")
        if not isinstance(dataset, TokenStream):
            return super().eval_lm_dataloader(dataset, batch_size=batch_size, context_window=context_window, **kwargs)
        kwargs.pop("max_tokens", None)  # fairseq's default of 36,000 is meant for samples
        return self.get_batch_iterator(dataset, max_sentences=batch_size or 1, **kwargs).next_epoch_itr(shuffle=False)

    def build_generator(self, *args: Any, **kwargs: Any) -> Any:
        """Builds the generator; raises ValueError for a split loaded as one stream, which has no prefixes."""
        if any(isinstance(dataset, TokenStream) for dataset in self.datasets.values()):
            needs = "eos for fairseq-generate, whose prefixes are sentences"
            raise ValueError(f"--sample-break-mode: needs {needs}; got none. Use --sample-break-mode eos.")
        return super().build_generator(*args, **kwargs)

    def train_step(self, sample: Any, model: Any, *args: Any, **kwargs: Any) -> Any:
        """fairseq's step; sets a restored state before it and stores the new state after it."""
        if self._restored:
            of_processes = self._restored["state"].chunk(get_global_world_size(), 1)
            model.restore_state(self._restored["position"], of_processes[get_global_rank()])
            self._restored = {}
        result = super().train_step(sample, model, *args, **kwargs)
        if self.one_stream:
            position, state = model.carried_state()
            lengths = {"chunk": self.args.tokens_per_sample, "random_by": self._seed_of_lengths}
            self._carried = {} if sample["is_last"] else {"position": position, "state": state, **lengths}
            self._gathered = None
        return result

    def gather_for_checkpoint(self, at_end: bool) -> None:
        """Collects the states of all processes in every process, before one process writes a checkpoint.

        At the end of an epoch there are none, although --skip-remainder-batch leaves the end of the text out.
        `training` calls it. fairseq notifies only the writing process, and gathering after every update is too slow.
        """
        carried = {} if at_end else self._carried
        if carried and (world_size := get_global_world_size()) > 1:
            states = [torch.empty_like(carried["state"]) for _ in range(world_size)]
            torch.distributed.all_gather(states, carried["state"].contiguous())
            carried = {**carried, "state": torch.cat(states, 1)}
        self._gathered = carried

    def get_checkpoint_dict(self) -> dict[str, Any]:
        """The task's part of a checkpoint: the states of all rows of all processes, and their position.

        It is empty at the end of the text, where training may continue with another number of rows. Raises RuntimeError
        if the states of several processes have not been gathered.
        """
        if self._gathered is None and self._carried and (world_size := get_global_world_size()) > 1:
            needs = f"gather_for_checkpoint in all {world_size} processes before one of them writes a checkpoint"
            got = "the state of one"
            raise RuntimeError(f"contiguous_lm: needs {needs}; got {got}. Use fairseq_tiedemb.plugin, which calls it.")
        carried = self._carried if self._gathered is None else self._gathered
        return {type(self).__name__: {**carried, "state": carried["state"].cpu()} if carried else {}}

    def set_checkpoint_dict(self, checkpoint: dict[str, Any]) -> None:
        """Stores the result of ``get_checkpoint_dict``; the next training step restores it in the model.

        Raises ValueError if the checkpoint has other ``--batch-size`` rows, ``--tokens-per-sample`` or random lengths,
        or if it is of one stream and this training is not.
        """
        if "state" not in checkpoint:
            return
        rows, here = checkpoint["state"].size(1), (self.args.batch_size or 0) * get_global_world_size()
        chunk = checkpoint.get("chunk", self.args.tokens_per_sample)
        seeds = (checkpoint.get("random_by"), self._seed_of_lengths)
        before, now = ("no such flag" if seed is None else f"it with --seed {seed}" for seed in seeds)
        anew = "begin at the start of the text with --reset-dataloader"
        in_mid_epoch = "in the middle of an epoch, as in the checkpoint's training"
        for flag, old, new, needs, use in (
            ("--sample-break-mode", "none", self.args.sample_break_mode or "none", in_mid_epoch, "none"),
            ("--batch-size", rows, here, "rows over all processes, as in the checkpoint", f"{rows} in total"),
            ("--tokens-per-sample", chunk, self.args.tokens_per_sample, in_mid_epoch, chunk),
            ("--random-length", before, now, in_mid_epoch, "that"),
        ):
            if old != new:
                raise ValueError(f"{flag}: needs {old} {needs}; got {new}. Use {use}, or {anew}.")
        self._restored = checkpoint
