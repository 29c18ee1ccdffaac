"""Figures out of what the stock commands print, and as `record` is told them.

Every reader raises a ValueError that names the flag and the file, if the file cannot be read, lacks the line or has a
figure that is not finite.
"""

import math
import re
from pathlib import Path

from fairseq_tiedemb.checkpoints.json_text import parse_json
from fairseq_tiedemb.results.records import Figure

# fairseq-eval-lm; a number may be inf or nan.
TOKENS = re.compile(r"Evaluated ([\d,]+) tokens")
PERPLEXITY = re.compile(r"Perplexity: (\S+)")
# fairseq-tiedemb ngram --test: predicted, unknown, perplexity, file.
NGRAM = re.compile(r" *([\d,]+) +[\d,]+ +(\S+)  (\S.*)")
# sacreBLEU's text; its JSON is read as such.
BLEU = re.compile(r"^BLEU\|(\S+) = (\S+) ", re.MULTILINE)
# A number in English print, and no decimal comma.
THOUSANDS = re.compile(r"-?\d{1,3}(,\d{3})+(\.\d+)?")
# fairseq-train.
PARAMETERS = re.compile(r"num\. shared model params: ([\d,]+) ")
ACCELERATOR = re.compile(r"^.*rank +\d+: capabilities = .*; name = (.+?) *$", re.MULTILINE)


def read_eval_lm(path: Path, *, flag: str) -> Figure:
    """Reads the perplexity from a log of fairseq-eval-lm; the last one, if it ran more than once."""
    text = read_text(path, flag=flag)
    tokens, perplexities = TOKENS.findall(text), PERPLEXITY.findall(text)
    if not tokens or not perplexities:
        raise ValueError(
            f"{flag}: needs a log of fairseq-eval-lm with `Evaluated N tokens` and `Perplexity: X`; got {path}, which "
            "lacks them. Use the log of a run that ended."
        )
    return Figure(finite(perplexities[-1], flag=flag, path=path), tokens=whole(tokens[-1]))


def read_ngram(path: Path, name: str, *, flag: str) -> Figure:
    """Reads the perplexity of a text, NAME or NAME.txt, from what `fairseq-tiedemb ngram` printed."""
    for line in read_text(path, flag=flag).splitlines():
        found = NGRAM.fullmatch(line)
        if found and Path(found[3]).stem == name:
            return Figure(finite(found[2], flag=flag, path=path), tokens=whole(found[1]))
    raise ValueError(
        f"{flag}: needs the table of fairseq-tiedemb ngram with the text {name}; got {path}, which lacks it. Use "
        "--test with this text."
    )


def read_bleu(path: Path, *, flag: str) -> Figure:
    """Reads the score from what sacrebleu printed, as text or as JSON; the last one, if there are more."""
    text = read_text(path, flag=flag)
    if found := BLEU.findall(text):
        signature, score = found[-1]
        return Figure(finite(score, flag=flag, path=path), signature=signature)
    try:
        values = parse_json(text)
        return Figure(finite(str(values["score"]), flag=flag, path=path), signature=str(values["signature"]))
    except (ValueError, KeyError, TypeError):
        raise ValueError(
            f"{flag}: needs what sacrebleu printed, `BLEU|... = X` or JSON; got {path}, which has neither. Use the "
            "output of sacrebleu REFERENCE -i FILE."
        ) from None


def read_parameters(text: str) -> int | None:
    """The number of parameters, each shared one once, that fairseq-train's log tells; None if it does not."""
    found = PARAMETERS.findall(text)
    return whole(found[-1]) if found else None


def read_accelerators(text: str) -> tuple[str, ...]:
    """The names of the GPUs that fairseq-train's log tells, each once."""
    return tuple(dict.fromkeys(ACCELERATOR.findall(text)))


def read_text(path: Path, *, flag: str) -> str:
    """Reads a file."""
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        raise ValueError(
            f"{flag}: needs a file that can be read; got {path} ({error.strerror}). Use another."
        ) from error


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
