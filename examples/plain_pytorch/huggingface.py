"""Shares one table between the two ends of a Hugging Face language model; training needs no (N, V) logits.

    python huggingface.py [--method cosine]

A small GPT-2 learns a sentence by heart with Transformers' Trainer, is saved and loaded, and generates the sentence.
Needs `pip install transformers accelerate`, but no fairseq.
"""

import argparse
import tempfile
from pathlib import Path

import torch
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments

from fairseq_tiedemb import for_transformers
from fairseq_tiedemb.sharing import SHARING_METHODS

SENTENCE = "one table turns words into vectors and features into scores , and no other table is there to be trained ."


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--method", choices=SHARING_METHODS, default="plain", help="how the table serves its two ends")
    method = parser.parse_args().method

    torch.manual_seed(1)
    vocabulary = sorted({*SENTENCE.split()})
    text = torch.tensor([vocabulary.index(word) for word in SENTENCE.split()])
    size = {"vocab_size": len(vocabulary), "n_positions": 64, "n_embd": 32, "n_layer": 2, "n_head": 2}
    no_dropout = dict.fromkeys(("resid_pdrop", "embd_pdrop", "attn_pdrop"), 0.0)
    model = GPT2LMHeadModel(GPT2Config(**size, **no_dropout, bos_token_id=None, eos_token_id=None))
    model = for_transformers(model, method, rows="new")

    with tempfile.TemporaryDirectory() as folder:
        how = {"max_steps": 200, "learning_rate": 3e-3, "per_device_train_batch_size": 1, "use_cpu": True}
        quiet = {"report_to": "none", "save_strategy": "no", "logging_strategy": "no", "disable_tqdm": True}
        arguments = TrainingArguments(folder, **how, **quiet)
        Trainer(model, arguments, train_dataset=[{"input_ids": text, "labels": text}]).train()
        model.save_pretrained(Path(folder) / "model")
        model = type(model).from_pretrained(Path(folder) / "model")

    batch = text.unsqueeze(0)
    in_training = model.train()(batch, labels=batch).loss
    in_evaluation = model.eval()(batch, labels=batch).loss
    print(f"{method}: loss by the table {in_training:.4f}, by all logits {in_evaluation:.4f}")
    said = model.generate(batch[:, :2], max_length=len(text), do_sample=False)
    print(" ".join(vocabulary[word] for word in said[0]))
