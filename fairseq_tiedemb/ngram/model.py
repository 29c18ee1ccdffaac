"""n-gram models as one table: probabilities of the n-grams that are known, and weights of backing off."""

from collections.abc import Sequence
from pathlib import Path
from typing import TextIO

import numpy as np
from numpy.typing import NDArray

from . import arpa
from .counts import Indices, count_ngrams, look_up
from .jelinek_mercer import estimate_weights
from .smoothing import FORMS, SMOOTHINGS, Counted, Options, Reals, Smoothing
from .text import BOS, Vocabulary

# An order takes the time of the text, whether it has such long sentences or not, and a k takes k numbers an order.
ORDERS, KATZ_KS = range(1, 101), range(1, 10_001)


class BackoffModel:
    """p_n(w | h) = probs(hw) if hw is known, else gamma(h) p_{n-1}(w | h'); gamma(h) is 1 if h is not known.

    The history h has at most n - 1 words, none from before the start of the sentence, <s>; h' is h without its first.

    Args:
        tables: keys, probabilities and weights, see the attributes.
        size: number of indices, ``Vocabulary.size``.

    Attributes:
        keys: of each order (G,), see ``Level``.
        probs: p_n of each order's n-grams (G,); 0 for <s> alone.
        backoffs: gamma of each order's n-grams (G,), 1 if none was seen to go on; nothing for the last order.
    """

    def __init__(self, tables: arpa.Tables, size: int):
        self.size = size
        self.keys, self.probs, self.backoffs = tables

    @classmethod
    def read_arpa(cls, path: str | Path, *, flag: str) -> tuple[Vocabulary, "BackoffModel"]:
        """Reads a model from ARPA text, and its words; see ``arpa.read``."""
        vocabulary, tables = arpa.read(path, flag=flag)
        return vocabulary, cls(tables, vocabulary.size)

    @property
    def order(self) -> int:
        """n of the longest n-grams."""
        return len(self.keys)

    def probabilities(self, tokens: NDArray[np.int32]) -> Reals:
        """p(w | h) of every token, given those before it in its sentence.

        Args:
            tokens: indices (N,). Histories end at BOS; without it, they end where the indices do.

        Returns:
            Probabilities (N,), 0 for BOS.
        """
        probs = self.probs[0][tokens]
        for n, (histories, ids) in enumerate(look_up(self.keys, tokens, self.size), start=2):
            shorter = np.where(histories < 0, 1, self.backoffs[n - 2][histories]) * probs[n - 1 :]
            probs[n - 1 :] = np.where(ids < 0, shorter, self.probs[n - 1][ids])
        return probs

    def log_probabilities(self, tokens: NDArray[np.int32]) -> Reals:
        """Natural logarithms of the probabilities of all tokens but <s>, in their order."""
        with np.errstate(divide="ignore"):  # an ARPA file may say that a word cannot be
            return np.log(self.probabilities(tokens)[tokens != BOS])

    def perplexity(self, tokens: NDArray[np.int32]) -> float:
        """exp of the mean negative log-probability of all tokens but <s>."""
        return float(np.exp(-self.log_probabilities(tokens).mean()))

    def write_arpa(self, words: Sequence[str], file: TextIO) -> None:
        """Writes the model as ARPA text: base-10 logarithms, by order, of probabilities and weights of backing off.

        Args:
            words: the words in the order of their indices, <s> and </s> first.
            file: where to.
        """
        arpa.write(arpa.Tables(self.keys, self.probs, self.backoffs), words, file)


class SmoothedModel(BackoffModel):
    """A model estimated from text by one of the methods of ``smoothing.py``.

    Args:
        tokens: indices (N,) of the training text; each sentence stands between BOS and EOS (``Vocabulary.read``).
        order: n of the longest n-grams, at least 1.
        size: number of indices, ``Vocabulary.size``. Words that the text lacks get their share of p_0.
        smoothing: name of the method.
        form: ``interpolated`` or ``back-off``; the method's usual one if not given.
        cutoff: n-grams of order 1, 2, ... that count less are cut off; the last number holds for higher orders too.
            SRILM's -gt1min, -gt2min, ...: discounts are estimated from all counts, and in Kneser-Ney smoothing it is
            a(g) that is compared below the highest order. The method's usual one if not given.
        katz_k: counts above k are not discounted by ``katz``.
        held_out: indices of the text on which the weights of ``jelinek-mercer`` are estimated.
        weights_by_count: whether they are by bucket of histories, or one an order.

    Attributes:
        method: the method.
        form: its form.
        discounts: the numbers of each order that determine what is taken off its counts; none for some methods.
        fallbacks: orders whose counts do not determine all of them.

    Raises:
        ValueError: for an unknown method, a form it lacks, a missing held-out text or numbers out of range.
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
        options = Options(katz_k)
        if self.method.needs_held_out:
            if held_out is None:
                raise ValueError(
                    f"--held-out: needs text that is not in TRAIN, for the weights of --smoothing {smoothing}; got "
                    "none. Use the validation text."
                )
            options = Options(katz_k, estimate_weights(levels, held_out, size, by_count=weights_by_count)[0])
        least = [*(cutoff or self.method.cutoff)]
        least += least[-1:] * (order - len(least))
        self.discounts: list[tuple[float, ...]] = []
        self.fallbacks: list[int] = []
        tables = arpa.Tables([], [], [])
        kept: list[NDArray[np.bool_]] = []
        lower = np.full(size, 1 / (size - 1))
        lower[BOS] = 0
        contexts = 1
        for n in range(1, order + 1):
            level = levels.pop(0)  # whose memory is free again at the end of the round
            histories = level.keys // size
            totals = np.bincount(histories, level.counts, contexts).astype(np.float64, copy=False)
            counted = Counted(n, level.counts, histories, totals, size - 1)
            found = self.method.discounts(counted, options)
            self.discounts.append(found.values)
            if not found.estimated:
                self.fallbacks.append(n)
            taken = found.taken
            if least[n - 1] > 1:
                kept.append(level.counts >= least[n - 1])
                taken = np.where(kept[-1], taken, level.counts)
            else:
                kept.append(np.ones(len(level.keys), dtype=bool))
            lower, backoff = FORMS[self.form](counted, taken, lower[level.suffixes])
            tables.keys.append(level.keys)
            tables.probs.append(lower)
            if n > 1:
                tables.backoffs.append(backoff)
            contexts = len(lower)
        super().__init__(tables if all(each.all() for each in kept) else _without(tables, kept, size), size)

    @property
    def title(self) -> str:
        """What the method is called in print, with its form if that is not the usual one."""
        return self.method.title if self.form == self.method.forms[0] else f"{self.method.title}, {self.form}"


class KneserNey(SmoothedModel):
    """Interpolated modified Kneser-Ney smoothing: ``SmoothedModel`` as it is without options.

    Args:
        tokens: indices (N,) of the training text; each sentence stands between BOS and EOS.
        order: n of the longest n-grams, at least 1.
        size: number of indices.
    """

    def __init__(self, tokens: NDArray[np.int32], order: int, size: int):
        super().__init__(tokens, order, size)


def check_options(
    smoothing: str, *, order: int, form: str | None, cutoff: Sequence[int] | None, katz_k: int
) -> Smoothing:
    """The method of this name, if it can be had with these options; see ``SmoothedModel``.

    Raises:
        ValueError: naming the flag.
    """
    if smoothing not in SMOOTHINGS:
        raise ValueError(
            f"--smoothing: needs one of {', '.join(SMOOTHINGS)}; got {smoothing}. Use modified-kneser-ney."
        )
    method = SMOOTHINGS[smoothing]
    if order not in ORDERS:
        raise ValueError(f"--order: needs a whole number from 1 to {ORDERS[-1]}; got {order}. Use 5.")
    if form not in (None, *FORMS):
        raise ValueError(f"form: needs one of {', '.join(FORMS)}; got {form}. Leave it out for the method's own.")
    if form not in (None, *method.forms):
        ways = [name for name, each in SMOOTHINGS.items() if form in each.forms]
        raise ValueError(f"--{form}: needs a method that has this form; got {smoothing}. Use {' or '.join(ways)}.")
    if cutoff is not None and (not cutoff or min(cutoff) < 1 or len(cutoff) > order):
        raise ValueError(
            f"--cutoff: needs 1 to {order} whole numbers of at least 1, for --order {order}; got "
            f"{' '.join(map(str, cutoff))}. Use 1 1 2, say, against n-grams of three words and more that come once."
        )
    if katz_k not in KATZ_KS:
        raise ValueError(f"--katz-k: needs a whole number from 1 to {KATZ_KS[-1]}; got {katz_k}. Use 7.")
    return method


def _without(tables: arpa.Tables, kept: Sequence[NDArray[np.bool_]], size: int) -> arpa.Tables:
    """The tables without n-grams that are not kept, but for words and the histories of others, which must stay."""
    staying = list(kept)
    for n in range(len(kept) - 1, 0, -1):
        staying[n - 1] = staying[n - 1].copy()
        staying[n - 1][tables.keys[n][staying[n]] // size] = True
    staying[0] = np.ones(size, dtype=bool)
    keys: list[Indices] = [tables.keys[0]]
    for n in range(1, len(kept)):
        fresh = np.cumsum(staying[n - 1]) - 1
        histories, words = np.divmod(tables.keys[n][staying[n]], size)
        keys.append(fresh[histories] * size + words)
    return arpa.Tables(
        keys,
        [probs[each] for probs, each in zip(tables.probs, staying, strict=True)],
        [backoffs[each] for backoffs, each in zip(tables.backoffs, staying[:-1], strict=True)],
    )
