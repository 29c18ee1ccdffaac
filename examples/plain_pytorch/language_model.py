"""A word language model in plain PyTorch: one table for input and output, trained without (N, V) logits.

    python language_model.py [--method cosine]

The text is Python's own documentation. fairseq is not needed.
"""

import argparse
import re
from collections import Counter
from pydoc_data.topics import topics

import torch
from torch import Tensor, nn

from fairseq_tiedemb import SharedEmbedding
from fairseq_tiedemb.sharing import SHARING_METHODS

ROWS, STEPS, WIDTH = 20, 35, 128


class LanguageModel(nn.Module):
    def __init__(self, vocabulary_size: int, method: str):
        super().__init__()
        self.table = SharedEmbedding(vocabulary_size, WIDTH, padding_idx=None, method=method, bias=True)
        self.lstm = nn.LSTM(WIDTH, WIDTH)

    def loss(self, text_TB: Tensor, state: tuple[Tensor, Tensor] | None) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        """Returns the summed loss of all words but the first, and the state after reading the last input word."""
        hidden_TBH, (h, c) = self.lstm(self.table.embed(text_TB[:-1]), state)
        return self.table.loss(hidden_TBH.flatten(0, 1), text_TB[1:].flatten()).loss, (h.detach(), c.detach())


def perplexity(model: LanguageModel, text_TB: Tensor, optimizer: torch.optim.Optimizer | None = None) -> float:
    """Returns the perplexity of one pass through the text; trains if there is an optimizer."""
    state, total = None, 0.0
    for begin in range(0, len(text_TB) - 1, STEPS):
        chunk_TB = text_TB[begin : begin + STEPS + 1]
        loss, state = model.loss(chunk_TB, state)
        total += loss.item()
        if optimizer is not None:
            optimizer.zero_grad()
            (loss / chunk_TB[1:].numel()).backward()
            optimizer.step()
    return float(torch.tensor(total / text_TB[1:].numel()).exp())


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--method", choices=SHARING_METHODS, default="plain", help="how the table serves its two ends")
    parser.add_argument("--epochs", type=int, default=4, metavar="N")
    arguments = parser.parse_args()

    words = re.findall(r"\w+|[^\w\s]", " ".join(topics.values()).lower())
    vocabulary = ["<unk>", *(word for word, count in Counter(words).items() if count > 2)]
    numbers = {word: number for number, word in enumerate(vocabulary)}
    text = torch.tensor([numbers.get(word, 0) for word in words])
    # Column b is the b-th part of the text, whose last tenth is held out.
    text_TB = text[: len(text) // ROWS * ROWS].view(ROWS, -1).t()
    train_TB, valid_TB = text_TB[: -len(text_TB) // 10], text_TB[-len(text_TB) // 10 :]

    torch.manual_seed(1)
    model = LanguageModel(len(vocabulary), arguments.method)
    adam = torch.optim.Adam(model.parameters(), lr=4e-3)
    print(f"{arguments.method}: {text_TB.numel():,} words, {len(vocabulary):,} types")
    for epoch in range(1, arguments.epochs + 1):
        train = perplexity(model, train_TB, adam)
        with torch.no_grad():
            valid = perplexity(model, valid_TB)
        print(f"epoch {epoch}: perplexity {train:.1f} in training, {valid:.1f} of what is held out")
