"""Figures out of what the stock commands print.

Every reader raises a ValueError that names flag and file if it cannot be read, lacks the line or has no finite figure.
"""

import math
import re
from pathlib import Path

from fairseq_tiedemb.checkpoints.text import parse_json

# fairseq-eval-lm; a number may be inf or nan.
TOKENS = re.compile(r"Evaluated ([\d,]+) tokens")
PERPLEXITY = re.compile(r"Perplexity: (\S+)")
BLEU = re.compile(r"^BLEU\|(\S+) = (\S+) ", re.MULTILINE)  # sacreBLEU's text; its JSON is read as such
THOUSANDS = re.compile(r"-?\d{1,3}(,\d{3})+(\.\d+)?")  # a number in English print, and no decimal comma
PARAMETERS = re.compile(r"num\. shared model params: (\d[\d,]{0,20}) ")  # fairseq-train


def read_eval_lm(path: Path, *, flag: str) -> tuple[float, int]:
    """Perplexity and number of tokens, from a log of fairseq-eval-lm; the last ones, if it ran more than once."""
    text = read_text(path, flag=flag)
    tokens, perplexities = TOKENS.findall(text), PERPLEXITY.findall(text)
    if not tokens or not perplexities:
        needs = "a log of fairseq-eval-lm with `Evaluated N tokens` and `Perplexity: X`"
        raise ValueError(f"{flag}: needs {needs}; got {path}, which lacks them. Use the log of a run that ended.")
    return finite(perplexities[-1], flag=flag, path=path), whole(tokens[-1])


def read_bleu(path: Path, *, flag: str) -> tuple[float, str]:
    """Score and signature, from what sacrebleu printed, as text or as JSON; the last ones, if there are more."""
    text = read_text(path, flag=flag)
    if scores := BLEU.findall(text):
        signature, score = scores[-1]
        return finite(score, flag=flag, path=path), signature
    try:
        values = parse_json(text)
        score, signature = str(values["score"]), str(values["signature"])
    except (ValueError, KeyError, TypeError):
        needs, got = "what sacrebleu printed, `BLEU|... = X` or JSON", f"{path}, which has neither"
        raise ValueError(f"{flag}: needs {needs}; got {got}. Use the output of sacrebleu REFERENCE -i FILE.") from None
    return finite(score, flag=flag, path=path), signature


def read_parameters(text: str) -> int | None:
    """The number of parameters, each shared one once, that fairseq-train's log tells; None if it does not."""
    counts = PARAMETERS.findall(text)
    return whole(counts[-1]) if counts else None


def read_text(path: Path, *, flag: str) -> str:
    """Reads a file."""
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        needs = "a file that can be read"
        raise ValueError(f"{flag}: needs {needs}; got {path} ({error.strerror}). Use another.") from error


def finite(text: str, *, flag: str, path: Path | None = None) -> float:
    """The number of a text, an integer where it is one."""
    try:
        value = float(text.replace(",", "") if THOUSANDS.fullmatch(text) else text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        where = f" in {path}" if path else ""
        raise ValueError(f"{flag}: needs a finite number; got {text}{where}. Use a run whose figures are finite.")
    return int(value) if re.fullmatch(r"-?[\d,]+", text) else value


def whole(text: str) -> int:
    """The number of a text such as `82,430`."""
    return int(text.replace(",", ""))
