"""Figures out of what the commands print, and as `record` is told them.

Every reader raises a ValueError that names the flag and the file, if the file cannot be read, lacks the line or has a
figure that is not finite.
"""

import contextlib
import re
import subprocess
from pathlib import Path

from fairseq_tiedemb.results import logs
from fairseq_tiedemb.results.logs import finite, read_text, whole

from .data import Figure

# fairseq-tiedemb ngram --test: predicted, unknown, perplexity, file.
NGRAM = re.compile(r" *([\d,]+) +[\d,]+ +(\S+)  (\S.*)")


def read_eval_lm(path: Path, *, flag: str) -> Figure:
    """Reads the perplexity from a log of fairseq-eval-lm."""
    perplexity, tokens = logs.read_eval_lm(path, flag=flag)
    return Figure(perplexity, tokens=tokens)


def read_bleu(path: Path, *, flag: str) -> Figure:
    """Reads the score from what sacrebleu printed."""
    score, signature = logs.read_bleu(path, flag=flag)
    return Figure(score, signature=signature)


def read_ngram(path: Path, name: str, *, flag: str) -> Figure:
    """Reads the perplexity of a text, NAME or NAME.txt, from what `fairseq-tiedemb ngram` printed."""
    for line in read_text(path, flag=flag).splitlines():
        row = NGRAM.fullmatch(line)
        if row and Path(row[3]).stem == name:
            return Figure(finite(row[2], flag=flag, path=path), tokens=whole(row[1]))
    raise ValueError(
        f"{flag}: needs the table of fairseq-tiedemb ngram with the text {name}; got {path}, which lacks it. Use "
        "--test with this text."
    )


def read_accelerators() -> tuple[str, ...]:
    """The names of this machine's GPUs, each once: fairseq-train prints them, but leaves them out of --log-file."""
    command = ["nvidia-smi", "--query-gpu=name", "--format=csv,noheader"]
    with contextlib.suppress(OSError, subprocess.CalledProcessError):
        found = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        return tuple(dict.fromkeys(found.splitlines()))
    return ()


def read_figure(text: str, *, flag: str) -> Figure:
    """A figure as a command line says it: 1.5, or 1.5[1.25-1.75], the median of several with their range."""
    ranged = re.fullmatch(r"(.*)\[(.+?)(?<![eE])-(.+)\]", text)
    if not ranged and "[" in text:
        raise ValueError(f"{flag}: needs VALUE or VALUE[LOW-HIGH]; got {text}. Use 1.5[1.25-1.75], say.")
    if not ranged:
        return Figure(finite(text, flag=flag))
    value, low, high = (finite(part, flag=flag) for part in ranged.groups())
    if not low <= value <= high:
        raise ValueError(f"{flag}: needs a value within its range; got {text}. Use VALUE[LOW-HIGH].")
    return Figure(value, low=low, high=high)
