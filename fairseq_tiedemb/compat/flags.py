"""Flags that fairseq's commands take, and then do not or cannot follow."""

import argparse
from importlib.util import find_spec
from typing import Any

from fairseq import checkpoint_utils, options
from fairseq.dataclass import utils as dataclass_utils
from fairseq.logging import metrics
from fairseq.models import BaseFairseqModel
from fairseq.ngram_repeat_block import NGramRepeatBlock
from fairseq.search import DiverseBeamSearch, LexicallyConstrainedBeamSearch
from fairseq.sequence_generator import SequenceGenerator, SequenceGeneratorWithAlignment
from omegaconf import DictConfig, OmegaConf

from ..bfloat16 import multiply_in_float32
from .mending import mend


@mend(options, "parse_args_and_arch")
def validation_needs_no_task(original: Any, parser: argparse.ArgumentParser, *args: Any, **kwargs: Any) -> Any:
    """Let `fairseq-validate` run without `--task`: the checkpoint's task, with its options, is what it validates.

    Without it: the command ends in `KeyError: None` (options.py:158), since it has no default task. Goes with one.
    """
    if "--task" in parser._option_string_actions and parser.get_default("task") is None:
        parser.set_defaults(task="translation")
    return original(parser, *args, **kwargs)


@mend(dataclass_utils, "merge_with_parent")  # as fairseq-hydra-train has it
def sections_have_any_type(original: Any, dc: Any, cfg: DictConfig, *args: Any, **kwargs: Any) -> Any:
    """Let fairseq-hydra-train train a plugin's model by the section of fairseq's own in all jobs of a sweep.

    Without it: `-m model=transformer_lm model._name=tied_transformer_lm` ends in omegaconf's ValidationError once the
    first job has imported the plugin, whose options are no subclass (dataclass/initialize.py:61). Goes when fairseq
    merges values.
    """
    values = OmegaConf.create(OmegaConf.to_container(cfg))
    values._set_parent(cfg._get_parent())
    return original(dc, values, *args, **kwargs)


@mend(BaseFairseqModel, "prepare_for_inference_")
def inference_in_bfloat16(original: Any, self: Any, cfg: Any) -> None:
    """Follow `--bf16` in fairseq-generate, -interactive and -eval-lm; `from_pretrained` gives settings without a path.

    Without it: they compute in float32 (fairseq_cli/generate.py:130, eval_lm.py:262). Goes when they look at it.
    """
    if getattr(getattr(cfg, "common_eval", None), "path", None) and cfg.common.bf16:
        self.bfloat16()
        multiply_in_float32()
    original(self, cfg)


@mend(SequenceGenerator, "__init__")
def searches_fit_their_models(original: Any, self: Any, models: Any, tgt_dict: Any, *args: Any, **kwargs: Any) -> None:
    """Refuse a beam without hypotheses, and a language model of other words than the translations'.

    Without it: `--beam 0` ends in ZeroDivisionError (search.py:142); with `--lm-path` words get the scores of others
    (sequence_generator.py:373), since the model's dict.txt is not compared. Goes when fairseq checks both.
    """
    if kwargs.get("beam_size", 1) < 1:
        raise ValueError(f"--beam: needs 1 or more; got {kwargs['beam_size']}. Use 1 for greedy search.")
    if (language_model := kwargs.get("lm_model")) is not None:
        is_one = hasattr(language_model, "supported_targets")  # which only language models have
        words = language_model.decoder.dictionary.symbols if is_one else []
        if words != tgt_dict.symbols:
            needs = f"a language model of the {len(tgt_dict)} words of the translations, in their order"
            got = f"one of {len(words)}, others or in another order" if is_one else type(language_model).__name__
            use = "one that was trained with their dictionary, and that as dict.txt in the data folder"
            raise ValueError(f"--lm-path: needs {needs}; got {got}. Use {use}.")
    original(self, models, tgt_dict, *args, **kwargs)


@mend(SequenceGenerator, "generate")
@mend(SequenceGeneratorWithAlignment, "generate")
def searches_have_what_they_need(original: Any, self: Any, models: Any, sample: dict[str, Any], **kwargs: Any) -> Any:
    """Let `--diverse-beam-groups` find a batch's sentences, and refuse `--constraints` without any.

    Without it: the diverse search takes the numbers of sentences in their set for those in the batch, and ends in
    IndexError after the first one (sequence_generator.py:337); fairseq-generate, whose data have no constraints, ends
    in TypeError. Goes when fairseq numbers the sentences of a batch.
    """
    if isinstance(self.search, DiverseBeamSearch):
        sample = {key: value for key, value in sample.items() if key != "id"}
    if isinstance(self.search, LexicallyConstrainedBeamSearch) and kwargs.get("constraints") is None:
        needs, got = "sentences with constraints, each after a tab", "data of fairseq-preprocess, which has none"
        raise ValueError(f"--constraints: needs {needs}; got {got}. Use fairseq-interactive.")
    return original(self, models, sample, **kwargs)


@mend(NGramRepeatBlock, "forward")
def repeated_ngrams(original: Any, self: Any, tokens: Any, lprobs: Any, bsz: int, beam_size: int, step: int) -> Any:
    """Follow `--no-repeat-ngram-size` on a CPU.

    Without it: the n-gram to be compared is one of the padding behind the words so far (ngram_repeat_block.py:105), and
    nothing is forbidden. Goes when fairseq passes the words alone.
    """
    words = tokens if self.use_extension else tokens[:, : step + 1]
    return original(self, words, lprobs, bsz, beam_size, step)


@mend(checkpoint_utils, "load_checkpoint")
def validations_work(original: Any, cfg: Any, trainer: Any, **kwargs: Any) -> Any:
    """Refuse batches of a validation, and a `--best-checkpoint-metric`, before the first update.

    Without it: a metric that no validation logs, such as bleu without `--eval-bleu`, ends in KeyError after the first
    epoch (fairseq_cli/train.py:534), which is lost. Goes when fairseq looks at its metrics before.
    """
    loaded = original(cfg, trainer, **kwargs)
    metric, dataset, of_training = cfg.best_checkpoint_metric, trainer.cfg.dataset, trainer._dummy_batch
    more = ["bleu"] * bool(getattr(trainer.task.cfg, "eval_bleu", False))  # which a batch of empty hypotheses has not
    for subset in () if dataset.disable_validation else dataset.valid_subset.split(","):
        first = trainer.get_valid_iterator(subset).first_batch
        with metrics.aggregate(new_root=True) as logged:
            if metric != "loss":  # which all log
                trainer.valid_step(first)
        names = ["loss", *logged.get_smoothed_values(), *more, "num_updates"]
        if metric not in names and not hasattr(trainer.task, "post_validate"):  # which may add to them
            needs = f"what validation logs, {', '.join(dict.fromkeys(names))}"
            use = "one of these; bleu needs --eval-bleu"
            raise ValueError(f"--best-checkpoint-metric: needs {needs}; got {metric!r}. Use {use}.")
    trainer._dummy_batch = of_training
    return loaded


@mend(options, "parse_args_and_arch")
def flags_fit(original: Any, *args: Any, **kwargs: Any) -> Any:
    """Refuse a `--context-window` without words, soft alignments of references, asynchronous saving without iopath.

    Without it: fairseq-eval-lm ends in ZeroDivisionError; fairseq-generate, whose scorer has hard alignments alone, in
    TypeError at the first sentence (fairseq_cli/generate.py:318); fairseq-train logs an error and ends with status 0
    (fairseq_cli/train.py:76). Goes when all end in a refusal.
    """
    parsed = original(*args, **kwargs)
    window, row = (getattr(parsed, name, None) for name in ("context_window", "tokens_per_sample"))
    if window and row is not None and not 0 < window < row:
        needs, use = f"0 or more, and less than the {row} of --tokens-per-sample", "fewer, such as half of them"
        raise ValueError(f"--context-window: needs {needs}; got {window}. Use {use}.")
    if getattr(parsed, "score_reference", False) and getattr(parsed, "print_alignment", None) == "soft":
        raise ValueError("--print-alignment: needs hard with --score-reference; got soft. Use hard.")
    if getattr(parsed, "write_checkpoints_asynchronously", False) and not find_spec("iopath"):
        needs, use = "the package iopath", "pip install iopath, or leave it out"
        raise ValueError(f"--write-checkpoints-asynchronously: needs {needs}; got a Python without it. Use {use}.")
    return parsed


@mend(options, "add_interactive_args")
def interactive_follows_its_flags(original: Any, parser: argparse.ArgumentParser) -> None:
    """Refuse `--print-alignment soft` and `--lm-path` of fairseq-interactive on the command line.

    Without it: ValueError, `too many values to unpack`, at the first sentence, since the command prints hard alignments
    alone (fairseq_cli/interactive.py:287); and a language model that changes nothing. Goes when it follows both.
    """

    def no_model(path: str) -> None:
        raise argparse.ArgumentTypeError(f"needs fairseq-generate; got {path}, which is not read here. Leave it out.")

    original(parser)
    for action in parser._actions:
        if action.dest == "print_alignment":
            action.choices = ["hard"]
        elif action.dest == "lm_path":
            action.type = no_model
