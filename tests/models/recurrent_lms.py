"""Small recurrent language models for tests, built as fairseq builds them."""

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import torch
from fairseq.data import Dictionary
from fairseq.models import ARCH_MODEL_REGISTRY

from fairseq_tiedemb.models._stream_lm import StreamLM

from .common import dictionary

WORDS = dictionary(17)


def build(
    preset: str = "tied_lstm_lm", *, words: Dictionary = WORDS, output_words: Dictionary | None = None, **options: Any
) -> StreamLM:
    """A model of a preset, with widths of 6 and no dropout unless options say otherwise."""
    model = ARCH_MODEL_REGISTRY[preset]
    sizes: dict[str, Any] = {"decoder_embed_dim": 6, "decoder_hidden_size": 6}
    if not preset.startswith("highway"):
        sizes["dropout"] = 0.0
    cfg = getattr(model, "__dataclass")(**{**sizes, **options})
    cfg._name = preset
    return model.build_model(cfg, SimpleNamespace(target_dictionary=output_words or words, source_dictionary=words))


def text(rows: int, columns: int, seed: int = 1) -> torch.Tensor:
    """Random words, (rows, columns)."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(4, len(WORDS), (rows, columns), generator=generator)


def chunks(tokens: torch.Tensor, length: int) -> Iterator[tuple[int, torch.Tensor]]:
    """Positions and pieces of a text."""
    return ((start, tokens[:, start : start + length]) for start in range(0, tokens.size(1), length))


def batch(tokens: torch.Tensor, position: int | None = None) -> dict[str, Any]:
    """A batch that predicts each column of ``tokens`` but the first, as a task makes it."""
    source, target = tokens[:, :-1], tokens[:, 1:]
    net_input = {"src_tokens": source, "src_lengths": target.ne(WORDS.pad()).sum(1)}
    if position is not None:
        net_input["stream_position"] = position
    return {
        "id": torch.arange(len(tokens)),
        "net_input": net_input,
        "target": target,
        "nsentences": len(tokens),
        "ntokens": int(target.ne(WORDS.pad()).sum()),
    }
