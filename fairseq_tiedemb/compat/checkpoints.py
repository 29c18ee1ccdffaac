"""Makes fairseq's commands read checkpoints as ours do (`fairseq_tiedemb.checkpoints`), and explain refusals."""

import logging
import os
import re
import textwrap
import types
from collections.abc import Sequence
from typing import Any

import torch
from fairseq import checkpoint_utils, models, tasks, utils
from fairseq.models.speech_to_text import xm_transformer
from fairseq.models.transformer import TransformerDecoderBase
from fairseq.trainer import Trainer
from hydra.errors import HydraException
from omegaconf.errors import OmegaConfBaseException

from ..checkpoints.files import read_file, refusal
from ..checkpoints.stand_ins import STAND_INS, Words
from .mending import mend, mend_now

logger = logging.getLogger(__name__)

UNSAFE = "TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD"
UNREADABLE = (OSError, LookupError, RuntimeError, TypeError, AttributeError, OmegaConfBaseException, HydraException)


@mend_now
def weights_only_by_default() -> None:
    """Drop TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD, old advice for fairseq, from this process and those that it starts.

    Without it: torch runs what a file contains wherever fairseq calls `torch.load` itself, as for a vocoder
    (models/text_to_speech/vocoder.py:193). Goes when torch drops the variable.
    """
    if os.environ.pop(UNSAFE, "0").lower() in ("1", "y", "yes", "true"):
        logger.warning("%s: ignored, for it runs the code that a checkpoint contains. Unset it.", UNSAFE)


@mend_now
def checkpoint_classes() -> None:
    """Tell torch which classes a fairseq checkpoint may hold, settings and numpy's numbers, by stand-ins.

    Without it: torch >= 2.6 refuses fairseq's checkpoints where a user's own code calls `torch.load`, which would then
    run what they contain. Goes when fairseq's checkpoints hold plain Python only.
    """
    # Not that of dictionaries, which becomes one only where `read_file` has read it.
    torch.serialization.add_safe_globals([each for each in STAND_INS if each[0] is not Words])


class TorchForCheckpoints(types.ModuleType):
    """A module with torch's names, except for `load`, which reads checkpoints by `read_file`."""

    def __getattr__(self, name: str) -> Any:
        return getattr(torch, name)

    def load(self, file: Any, *_: Any, **__: Any) -> dict[str, Any]:
        """Reads a file, or the file of a path, onto the CPU, whatever other arguments say."""
        if isinstance(file, str):
            with open(file, "rb") as opened:
                return self.load(opened)
        return read_file(file, str(getattr(file, "name", "checkpoint")))


@mend_now
def one_way_to_read() -> None:
    """Let fairseq read checkpoints by `checkpoints.files.read_file`, as our own commands do.

    Without it: bits that have changed are loaded without a word, and settings that fetch or send something reach
    OmegaConf (checkpoint_utils.py:340, 909; xm_transformer.py:645, which reads a second file that settings name).
    Goes when `torch.load` compares checksums, and fairseq reads settings as values.
    """
    for module in (checkpoint_utils, xm_transformer):
        module.torch = TorchForCheckpoints("torch")


@mend(checkpoint_utils, "load_checkpoint_to_cpu")
@mend(checkpoint_utils, "load_ema_from_checkpoint")
def checkpoint_errors(original: Any, *args: Any, **kwargs: Any) -> Any:
    """Name the file, and give the reason, when a checkpoint is refused.

    Without it: errors about missing content do not name the file, folders end in a traceback, and a model of a plugin
    that was not imported raises `KeyError: '_name'` (checkpoint_utils.py:340, 909). Goes when fairseq gives the reason.
    """
    path = str(args[0] if args else kwargs.get("path", kwargs.get("fpath")))
    try:
        state = original(*args, **kwargs)
    except UNREADABLE as error:
        raise ValueError(refusal(path, error)) from error
    cfg = state.get("cfg")
    known = {"task": tasks.TASK_REGISTRY, "model": models.MODEL_REGISTRY | models.ARCH_MODEL_REGISTRY}
    for kind, registry in known.items():
        name = getattr(getattr(cfg, kind, None), "_name", None)
        if name is not None and name not in registry:
            needs, use = f"a registered {kind}", "--user-dir (common.user_dir for fairseq-hydra-train) with its folder"
            raise ValueError(f"{path}: needs {needs}; got {name!r}, which no imported code defines. Use {use}.")
    return state


@mend(checkpoint_utils, "load_model_ensemble_and_task")
def misfits(original: Any, filenames: Sequence[str], *args: Any, **kwargs: Any) -> Any:
    """Name the checkpoint whose weights do not fit their model or the dictionaries, or that lacks settings.

    Without it: errors of torch and OmegaConf do not say which file it is (checkpoint_utils.py:458, 515). Goes when
    fairseq does.
    """
    try:
        return original(filenames, *args, **kwargs)
    except (RuntimeError, OmegaConfBaseException) as error:
        text = " ".join(str(error).split())
        if isinstance(error, OmegaConfBaseException) or text.startswith("Neither args nor cfg"):
            needs = "the settings of a model and its task"
        elif "loading state_dict" not in text:
            raise
        elif "key(s) in state_dict" in text:
            needs = "exactly the weights of its model"
        else:
            needs = "dictionaries that fit its weights"
        got, use = f"others ({textwrap.shorten(text, 300)})", "those of the training as they were saved"
        raise ValueError(f"{':'.join(map(str, filenames))}: needs {needs}; got {got}. Use {use}.") from error


@mend(checkpoint_utils, "load_model_ensemble_and_task")
def ensembles_of_language_models(original: Any, filenames: Sequence[str], *args: Any, **kwargs: Any) -> Any:
    """Let fairseq-eval-lm score by several models, `--path a.pt:b.pt`, as its help says.

    Without it: it looks for one file of that name (fairseq_cli/eval_lm.py:253). Goes when it splits the names.
    """
    if len(filenames) == 1 and not os.path.exists(filenames[0]):
        filenames = utils.split_paths(filenames[0])
    return original(filenames, *args, **kwargs)


@mend(TransformerDecoderBase, "upgrade_state_dict_named")
def shared_tables_beside_adaptive_softmax(
    original: Any, self: Any, state_dict: dict[str, Any], name: str
) -> dict[str, Any]:
    """Load Transformers that share their input table and have an adaptive softmax, which has rows of its own.

    Without it: fairseq adds an output projection, which the model does not have (transformer_decoder.py:402), and
    refuses the weights. Goes when fairseq looks for the projection first.
    """
    key = f"{name}.output_projection.weight"
    was_there = key in state_dict
    state = original(self, state_dict, name)
    if self.output_projection is None and not was_there:
        state.pop(key, None)
    return state


@mend(Trainer, "load_checkpoint")
def reason_for_refusing_a_checkpoint(original: Any, self: Trainer, filename: str, *args: Any, **kwargs: Any) -> Any:
    """Show why a checkpoint cannot be loaded: a model's own error, or what does not fit.

    Without it: "Cannot load model parameters; please ensure that the architectures match", even for a dictionary of
    another size (trainer.py:597); likewise for another optimizer or criterion, and "KeyError: 'best'" for another
    schedule. Goes when fairseq shows the reason.
    """
    try:
        return original(self, filename, *args, **kwargs)
    except AssertionError as error:
        found = re.match(r"(Optimizer|Criterion) does not match.* (\S+) vs (\S+)", str(error))
        if found is None:
            raise
        flag = "bf16, --fp16, or memory-efficient" if "FP16Optimizer" in found[0] else found[1].lower()
        needs, got, use = f"{found[2]}, as in {filename}", found[3], "--reset-optimizer to begin without its state"
        raise ValueError(f"--{flag}: needs {needs}; got {got}. Use {use}, or the same.") from None
    except KeyError as error:
        if error.args != ("best",):
            raise
        needs, got = f"the one that {filename} was trained with", self.cfg.lr_scheduler._name
        raise ValueError(f"--lr-scheduler: needs {needs}; got {got}. Use it, or --reset-lr-scheduler.") from None
    except Exception as error:
        reason = error.__context__
        if "parameter group" in str(error):
            got, use = f"those of {filename}: {error}", "--reset-optimizer"
            raise ValueError(f"--optimizer: needs the parameters of its state; got {got}. Use {use}.") from None
        if "Cannot load model parameters" not in str(error):
            raise
        if isinstance(reason, ValueError):
            raise reason from None
        if ours := [line.strip() for line in str(reason).splitlines() if "; got " in line]:  # among torch's
            raise ValueError(ours[0]) from None
        got = " ".join(str(reason).split())[:400]
        use = "the --arch and options of its training, or another --save-dir; for other tables, fairseq-tiedemb tie"
        raise ValueError(f"{filename}: needs a checkpoint of the same model; got another ({got}). Use {use}.") from None
