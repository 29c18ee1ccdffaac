"""Smoothing methods restated with dictionaries, one probability at a time, in the words of their papers.

Nothing is imported from the package. What a word was seen to have after a history, `own`, is that of the paper;
whatever is left of 1 goes to the lower order, to all words (interpolated) or to those with nothing of their own
(back-off).
"""

import math
from collections import Counter

Gram = tuple[str, ...]


class Oracle:
    """p(w | h) of a method.

    Args:
        text: a sentence a line.
        order: of the model.
        method: its name.
        back_off: its form.
        cutoff: for each order, what an n-gram must count.
        k: of Katz.
        weights: of Jelinek-Mercer: for each order a function of N_h.
    """

    def __init__(self, text, order, method, *, back_off=False, cutoff=None, k=7, weights=None):
        sentences = [("<s>", *line.split(), "</s>") for line in text.splitlines()]
        self.words = {word for sentence in sentences for word in sentence} - {"<s>"}
        self.method, self.back_off, self.k, self.weights = method, back_off, k, weights
        self.cutoff = cutoff or [1] * order
        self.known: dict[tuple[str, Gram], float] = {}
        plain = Counter(s[i : i + n] for s in sentences for n in range(1, order + 1) for i in range(len(s) - n + 1))
        del plain["<s>",]
        before: dict[Gram, set[str]] = {}
        for gram in [*plain, *{s[:2] for s in sentences}]:
            before.setdefault(gram[1:], set()).add(gram[0])
        self.counts = {
            gram: len(before[gram]) if "kneser" in method and len(gram) < order and gram[0] != "<s>" else count
            for gram, count in plain.items()
        }
        self.numbers = [Counter(c for gram, c in self.counts.items() if len(gram) == n) for n in range(order + 1)]
        self.following: dict[Gram, dict[str, int]] = {}
        for gram, count in self.counts.items():
            self.following.setdefault(gram[:-1], {})[gram[-1]] = count

    def probability(self, word: str, history: Gram) -> float:
        if (word, history) not in self.known:
            self.known[word, history] = self.restated(word, history)
        return self.known[word, history]

    def restated(self, word: str, history: Gram) -> float:
        lower = self.lower(word, history)
        following = self.following.get(history, {})
        if not following:
            return lower
        own, total = {}, sum(following.values())
        for other, count in following.items():
            if count >= self.cutoff[len(history)]:
                own[other] = self.own(count, total, len(following), len(history) + 1)
        left = 1 - math.fsum(own.values())
        if not self.back_off or len(own) == len(self.words):
            return own.get(word, 0) + left * lower
        if left < 1e-12:  # the history counts one more
            own = {other: share * total / (total + 1) for other, share in own.items()}
            left = 1 / (total + 1)
        if word in own:
            return own[word]
        return left * lower / math.fsum(self.lower(other, history) for other in self.words - own.keys())

    def lower(self, word: str, history: Gram) -> float:
        return self.probability(word, history[1:]) if history else 1 / len(self.words)

    def own(self, count: int, total: int, types: int, n: int) -> float:
        """What is left to an n-gram that was seen."""
        if self.method == "jelinek-mercer":
            return self.weights[n - 1](total) * count / total
        if self.method == "witten-bell":
            return count / (total + types)
        if self.method == "katz":
            return self.katz_ratio(count, n) * count / total
        if self.method == "modified-kneser-ney":
            return (count - self.three_discounts(n)[min(count, 3) - 1]) / total
        return (count - self.one_discount(n)) / total

    def one_discount(self, n: int) -> float:
        number = self.numbers[n]
        return number[1] / (number[1] + 2 * number[2]) if number[1] and number[2] else 0.5

    def three_discounts(self, n: int) -> list[float]:
        number = self.numbers[n]
        if all(number[r] for r in (1, 2, 3, 4)):
            y = number[1] / (number[1] + 2 * number[2])
            found = [r - (r + 1) * y * number[r + 1] / number[r] for r in (1, 2, 3)]
            if min(found) > 0:
                return found
        return [0.5, 1.0, 1.5]

    def katz_ratio(self, r: int, n: int) -> float:
        number = self.numbers[n]
        if r > self.k or not number[1] or not number[r] or (n == 1 and len(self.following[()]) == len(self.words)):
            return 1.0
        a = (self.k + 1) * number[self.k + 1] / number[1]
        if a >= 1:
            return 1.0
        adjusted = (r + 1) * number[r + 1] / number[r]  # Good-Turing
        ratio = (adjusted / r - a) / (1 - a)
        return ratio if 0 < ratio <= 1 else 1.0

    def perplexity(self, text: str, order: int) -> float:
        logs = []
        for line in text.splitlines():
            sentence = ("<s>", *line.split(), "</s>")
            logs += [
                math.log(self.probability(sentence[i], sentence[max(0, i - order + 1) : i]))
                for i in range(1, len(sentence))
            ]
        return math.exp(-math.fsum(logs) / len(logs))
