"""n-gram models as tables of probabilities and back-off weights."""

from collections.abc import Sequence
from pathlib import Path
from typing import TextIO

import numpy as np
from numpy.typing import NDArray

from ..option_checks import OneOf, check_value
from . import arpa
from .counts import count_ngrams, look_up
from .fields import Indices, Reals, first_true
from .jelinek_mercer import estimate_weights
from .smoothing import FORMS, SMOOTHINGS, Counted, Smoothing
from .text import BOS, Vocabulary

# Of a probability, by the rounding of an ARPA file's numbers, some of which have six digits.
LARGEST = 1.001
# An order takes the time of the text, whether it has such long sentences or not, and a k takes k numbers an order.
ORDERS, KATZ_KS = range(1, 101), range(1, 10_001)


class BackoffModel:
    """A back-off model: p_n(w | h) = probs(hw) if hw is in the table, else gamma(h) p_{n-1}(w | h').

    gamma(h) is 1 if h is not in the table. The history h has at most n - 1 words, none before <s>; h' lacks the first.

    Args:
        tables: keys, probabilities and back-off weights; see the attributes.
        size: number of indices, ``Vocabulary.size``.

    Attributes:
        keys: keys by order (G,), see ``Level``.
        probs: p_n of the n-grams, by order (G,); 0 for <s>.
        backoffs: gamma of the n-grams, by order (G,), 1 for n-grams without continuation; the highest order has none.
    """

    def __init__(self, tables: arpa.Tables, size: int):
        self.size = size
        self.keys, self.probs, self.backoffs = tables
        self.source: tuple[str, str | Path, list[str]] | None = None  # flag, file and words of an ARPA file

    @classmethod
    def read_arpa(cls, path: str | Path, *, flag: str) -> tuple[Vocabulary, "BackoffModel"]:
        """Reads a model and its vocabulary from ARPA text; see ``arpa.read``."""
        vocabulary, tables = arpa.read(path, flag=flag)
        model = cls(tables, vocabulary.size)
        model.source = (flag, path, vocabulary.symbols())
        return vocabulary, model

    @property
    def order(self) -> int:
        """The highest n."""
        return len(self.keys)

    def probabilities(self, tokens: NDArray[np.int32]) -> Reals:
        """Returns p(w | h) (N,) of every token, given the tokens before it in its sentence; 0 for BOS.

        Histories end at BOS; without BOS, at the start of `tokens` (N,).
        """
        probs = self.probs[0][tokens]
        for n, (ends, histories, unseen, seen, ids) in enumerate(look_up(self.keys, tokens, self.size), start=2):
            probs[ends[unseen]] *= self.backoffs[n - 2][histories[unseen]]
            probs[ends[seen]] = self.probs[n - 1][ids]
        return probs

    def log_probabilities(self, tokens: NDArray[np.int32]) -> Reals:
        """Natural logarithms of the probabilities of all tokens but <s>, in their order.

        ValueError for a probability above 1, which an ARPA file's weights of backing off may give.
        """
        with np.errstate(over="ignore", invalid="ignore"):  # of such weights
            probs = self.probabilities(tokens)
        if (at := first_true(~(probs <= LARGEST))) is not None:
            flag, path, words = self.source or ("model", "one without words", list(map(str, range(self.size))))
            history = " ".join(words[index] for index in tokens[max(at + 1 - self.order, 0) : at])
            got = f"{probs[at]:.3g} for {words[tokens[at]]!r} after {history!r} by the weights of {path}"
            use = "a whole ARPA file, as ngram --arpa, SRILM or KenLM writes it"
            raise ValueError(f"{flag}: needs probabilities of at most 1; got {got}. Use {use}.")
        with np.errstate(divide="ignore"):  # an ARPA file may say that a word cannot be
            return np.log(probs[tokens != BOS])

    def write_arpa(self, words: Sequence[str], file: TextIO) -> None:
        """Writes the model as ARPA text; `words` are in the order of their indices, <s> and </s> first."""
        arpa.write(arpa.Tables(self.keys, self.probs, self.backoffs), words, file)


class SmoothedModel(BackoffModel):
    """An n-gram model estimated from text by a method of ``smoothing.py``.

    Args:
        tokens: indices (N,) of the training text, with BOS and EOS around every sentence (``Vocabulary.read``).
        order: the highest n, at least 1.
        size: number of indices, ``Vocabulary.size``. Words that the text lacks share p_0.
        smoothing: name of the method.
        form: ``interpolated`` or ``back-off``; default: the method's first form.
        cutoff: minimum counts of n-grams of order 1, 2, ...; the last holds for higher orders too. As SRILM's -gt1min,
            -gt2min, ...: discounts are estimated from all counts, and Kneser-Ney compares a(g) below the highest order.
            Default: the method's own.
        katz_k: ``katz`` does not discount counts above k.
        held_out: indices of the text on which ``jelinek-mercer`` estimates its weights.
        weights_by_count: whether those weights are by bucket of histories, or one per order.

    Attributes:
        discounts: parameters of the discounts, by order; empty for some methods.
        fallbacks: orders whose counts do not determine all parameters.

    Raises:
        ValueError: for an unknown method or form, missing held-out text, or numbers out of range.
    """

    def __init__(
        self,
        tokens: NDArray[np.int32],
        order: int,
        size: int,
        *,
        smoothing: str = "modified-kneser-ney",
        form: str | None = None,
        cutoff: Sequence[int] | None = None,
        katz_k: int = 7,
        held_out: NDArray[np.int32] | None = None,
        weights_by_count: bool = True,
    ):
        self.method = check_options(smoothing, order=order, form=form, cutoff=cutoff, katz_k=katz_k)
        self.form = form or self.method.forms[0]
        levels = count_ngrams(tokens, order, size, continuation=self.method.continuation)
        weights: tuple[Reals, ...] = ()
        if self.method.needs_held_out:
            if held_out is None:
                needs = f"text that is not in TRAIN, for the weights of --smoothing {smoothing}"
                raise ValueError(f"--held-out: needs {needs}; got none. Use the validation text.")
            weights, _ = estimate_weights(levels, held_out, size, by_count=weights_by_count)
        least = cutoff or self.method.cutoff
        self.discounts: list[tuple[float, ...]] = []
        self.fallbacks: list[int] = []
        tables = arpa.Tables([], [], [])
        kept: list[NDArray[np.bool_]] = []
        lower = np.full(size, 1 / (size - 1))
        lower[BOS] = 0
        contexts = 1
        for n in range(1, order + 1):
            level = levels.pop(0)  # removed, so that its memory is freed after this round
            histories = level.keys // size
            totals = np.bincount(histories, level.counts, contexts).astype(np.float64, copy=False)
            counted = Counted(n, level.counts, histories, totals, size - 1, katz_k, weights)
            discounted = self.method.discounts(counted)
            self.discounts.append(discounted.values)
            if not discounted.estimated:
                self.fallbacks.append(n)
            kept.append(level.counts >= least[min(n, len(least)) - 1])
            taken = np.where(kept[-1], discounted.taken, level.counts)
            lower, backoff = FORMS[self.form](counted, taken, lower[level.suffixes])
            tables.keys.append(level.keys)
            tables.probs.append(lower)
            if n > 1:
                tables.backoffs.append(backoff)
            contexts = len(lower)
        super().__init__(tables if all(each.all() for each in kept[1:]) else _without(tables, kept, size), size)

    @property
    def title(self) -> str:
        """The method's name in print, with its form unless that is the method's first."""
        return self.method.title if self.form == self.method.forms[0] else f"{self.method.title}, {self.form}"


def check_options(
    smoothing: str, *, order: int, form: str | None, cutoff: Sequence[int] | None, katz_k: int
) -> Smoothing:
    """Returns the smoothing method of this name; ValueError, naming the flag, for bad options of ``SmoothedModel``."""
    check_value("--smoothing", smoothing, OneOf(tuple(SMOOTHINGS), "modified-kneser-ney"))
    method = SMOOTHINGS[smoothing]
    if order not in ORDERS:
        raise ValueError(f"--order: needs a whole number from 1 to {ORDERS[-1]}; got {order}. Use 5.")
    if form not in (None, *FORMS):
        raise ValueError(f"form: needs one of {', '.join(FORMS)}; got {form}. Leave it out for the method's own.")
    if form not in (None, *method.forms):
        ways = [name for name, each in SMOOTHINGS.items() if form in each.forms]
        raise ValueError(f"--{form}: needs a method that has this form; got {smoothing}. Use {' or '.join(ways)}.")
    if cutoff is not None and (not cutoff or min(cutoff) < 1 or len(cutoff) > order):
        needs = f"1 to {order} whole numbers of at least 1, for --order {order}"
        use = "1 1 2, say, to drop n-grams of three or more words with count 1"
        raise ValueError(f"--cutoff: needs {needs}; got {' '.join(map(str, cutoff))}. Use {use}.")
    if katz_k not in KATZ_KS:
        raise ValueError(f"--katz-k: needs a whole number from 1 to {KATZ_KS[-1]}; got {katz_k}. Use 7.")
    return method


def _without(tables: arpa.Tables, kept: Sequence[NDArray[np.bool_]], size: int) -> arpa.Tables:
    """Removes n-grams that are not in `kept`, to which it adds single words and the histories of remaining n-grams."""
    kept[0][:] = True
    for n in range(len(kept) - 1, 0, -1):
        kept[n - 1][tables.keys[n][kept[n]] // size] = True
    keys: list[Indices] = [tables.keys[0]]
    for n in range(1, len(kept)):
        fresh = np.cumsum(kept[n - 1]) - 1
        histories, words = np.divmod(tables.keys[n][kept[n]], size)
        keys.append(fresh[histories] * size + words)
    probs, backoffs = ([part[which] for part, which in zip(parts, kept, strict=False)] for parts in tables[1:])
    return arpa.Tables(keys, probs, backoffs)
