"""Shares one table between the input and the head of a Hugging Face language model; training needs no (N, V) logits.

    python huggingface.py [--method cosine]

A small GPT-2 learns a sentence by heart and generates it. Needs `pip install transformers`, but no fairseq.
"""

import argparse

import torch
from torch import Tensor, nn
from transformers import GPT2Config, GPT2LMHeadModel, PreTrainedModel

from fairseq_tiedemb import SharedEmbedding
from fairseq_tiedemb.sharing import SHARING_METHODS

SENTENCE = "one table turns words into vectors and features into scores , and no other table is there to be trained ."


class Head(nn.Module):
    """The model's output layer; it owns no parameters, so that a checkpoint has the table once."""

    def __init__(self, table: SharedEmbedding):
        super().__init__()
        self.scores = table.scores  # a bound method: the table does not become a submodule

    def forward(self, features: Tensor) -> Tensor:
        return self.scores(features)


def share_table(model: PreTrainedModel, method: str) -> SharedEmbedding:
    """Makes the input table of a model, with its current rows, also the output table."""
    old = model.get_input_embeddings()
    table = SharedEmbedding(old.num_embeddings, old.embedding_dim, padding_idx=None, method=method, weight=old.weight)
    model.set_input_embeddings(table)
    model.set_output_embeddings(Head(table))
    model.config.tie_word_embeddings = False  # transformers would look for a weight in the head
    return table


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--method", choices=SHARING_METHODS, default="plain", help="how the table serves its two ends")
    method = parser.parse_args().method

    torch.manual_seed(1)
    vocabulary = sorted({*SENTENCE.split()})
    text = torch.tensor([[vocabulary.index(word) for word in SENTENCE.split()]])
    size = {"vocab_size": len(vocabulary), "n_positions": 64, "n_embd": 32, "n_layer": 2, "n_head": 2}
    model = GPT2LMHeadModel(GPT2Config(**size, bos_token_id=None, eos_token_id=None))
    # GPT-2's initial rows are short, with norm 0.02 sqrt(D), by which some methods divide.
    nn.init.normal_(model.get_input_embeddings().weight, std=size["n_embd"] ** -0.5)
    table = share_table(model, method)

    adam = torch.optim.Adam(model.parameters(), lr=3e-3)
    for _ in range(100):
        features = model.base_model(text).last_hidden_state
        loss = table.loss(features[:, :-1].flatten(0, 1), text[:, 1:].flatten()).loss / (text.numel() - 1)
        adam.zero_grad()
        loss.backward()
        adam.step()

    model.eval()
    features = model.base_model(text).last_hidden_state
    lean = table.loss(features[:, :-1].flatten(0, 1), text[:, 1:].flatten()).loss / (text.numel() - 1)
    print(f"{method}: loss of the table {lean:.4f}, of transformers {model(text, labels=text).loss:.4f}")
    said = model.generate(text[:, :2], max_length=text.numel(), do_sample=False)
    print(" ".join(vocabulary[word] for word in said[0]))
