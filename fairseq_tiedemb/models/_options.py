"""Options shared by the models, and their checks."""

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from fairseq.data import Dictionary
from fairseq.dataclass import FairseqDataclass
from omegaconf import DictConfig

from ..checkpoints.word_vectors import read_word_vectors
from ..embedding import SharedEmbedding
from ..modules.factorized import gaussian_linear
from ..sharing import SHARING_METHODS

logger = logging.getLogger(__name__)

SHARING_METHODS.load()
SHARING_METHOD_HELP = "how one table gives input vectors and logits: " + "; ".join(
    # argparse formats help with %
    f"{method.name} ({method.summary})".replace("%", "%%")
    for method in SHARING_METHODS.values()
)

DROPOUT_HELP = "dropout probability {}; default: --dropout"
PROJECTION_HELP = "insert a learned matrix P between features and output embedding (Press & Wolf 2016)"
PROJECTION_BIAS_HELP = "give P a bias, as in Press & Wolf's code; presets with P have it"


@dataclass
class SharingConfig(FairseqDataclass):
    """Options for weight tying and the sharing method."""

    share_decoder_input_output_embed: bool = field(
        default=False, metadata={"help": "weight tying: decoder input and output embeddings are one table"}
    )
    share_all_embeddings: bool = field(
        default=False,
        metadata={
            "help": "three-way weight tying: one table for encoder input, decoder input and output; needs "
            "fairseq-preprocess --joined-dictionary"
        },
    )
    sharing_method: str = field(default="plain", metadata={"help": SHARING_METHOD_HELP})
    projection: bool = field(default=False, metadata={"help": PROJECTION_HELP})
    projection_bias: bool = field(default=False, metadata={"help": PROJECTION_BIAS_HELP})


def check_shared_sizes(*, share_all: bool, asked_by: str, source_dim: int, target_dim: int, output_dim: int) -> None:
    """Raises ValueError, which names the flag or preset ``asked_by``, if shared tables differ in width."""
    if target_dim != output_dim:
        raise ValueError(
            f"{asked_by}: needs --decoder-embed-dim equal to --decoder-out-embed-dim; got {target_dim} and "
            f"{output_dim}. Use --decoder-out-embed-dim {target_dim}."
        )
    if share_all and source_dim != target_dim:
        raise ValueError(
            f"{asked_by}: needs --encoder-embed-dim equal to --decoder-embed-dim; got {source_dim} and {target_dim}. "
            f"Use --encoder-embed-dim {target_dim}."
        )


def check_joined_dictionary(source: Dictionary, target: Dictionary, *, asked_by: str) -> None:
    """Raises ValueError, which names ``asked_by``, unless source and target have the same dictionary."""
    if source == target:
        return
    pairs = zip(source.symbols, target.symbols, strict=False)
    index = next((i for i, (word, other) in enumerate(pairs) if word != other), None)
    where = "" if index is None else f", which differ at entry {index} ({source[index]!r} and {target[index]!r})"
    raise ValueError(
        f"{asked_by}: needs one dictionary for both languages; got dictionaries of {len(source)} and {len(target)} "
        f"words{where}. Use the data folder of the training for a trained model; before training, use "
        "fairseq-preprocess --joined-dictionary, or tie the decoder's embeddings alone."
    )


def check_projection(*, projects: bool, bias: bool, no_bias: bool = False) -> None:
    """Raises ValueError for ``--projection-bias`` and ``--no-projection-bias`` without P, and for both at once."""
    if bias and not projects:
        raise ValueError("--projection-bias: needs --projection; got a model without one. Use --projection too.")
    if no_bias and not projects:
        raise ValueError("--no-projection-bias: needs a model with P; got one without. Use --projection too.")
    if bias and no_bias:
        raise ValueError("--projection-bias: needs to be alone; got --no-projection-bias too. Use one of them.")


def build_projection(features_dim: int, width: int, *, bias: bool) -> torch.nn.Linear:
    """P (width, D), Gaussian, which keeps the standard deviation of the features' elements; its bias starts at 0."""
    return gaussian_linear(features_dim, width, bias=bias, std=features_dim**-0.5)


def check_ranges(cfg: FairseqDataclass | DictConfig) -> None:
    """Raises ValueError, which names the flag, unless sizes are positive and dropout probabilities in [0, 1)."""
    options: Mapping[str, Any] = dict(cfg if isinstance(cfg, DictConfig) else vars(cfg))
    for name, value in options.items():
        flag = "--" + name.replace("_", "-")
        if name.endswith(("_dim", "_size", "_layers")) and value is not None and value < 1:
            raise ValueError(f"{flag}: needs a positive whole number; got {value}. Use 1 or more.")
        if "dropout" in name and value is not None and not 0.0 <= value < 1.0:
            raise ValueError(f"{flag}: needs a probability in [0, 1); got {value}. Use 0.3, say.")


def load_pretrained(table: SharedEmbedding, path: str, dictionary: Dictionary, *, flag: str) -> None:
    """Copies word vectors from a text file into the table; tokens that the file lacks keep their initial rows.

    Raises:
        ValueError: if the file is missing or damaged, its width is not the table's, or it has no token of the
            dictionary.
    """
    if not Path(path).is_file():
        raise ValueError(
            f"{flag}: needs a text file of word vectors; got {path!r}, which is no file. Use another path; or, for a "
            f"trained model, --model-overrides \"{{'{flag[2:].replace('-', '_')}': None}}\"."
        )
    vectors = read_word_vectors(Path(path), flag=flag, kinds="word vectors as text")
    width = len(next(iter(vectors.values())))
    if width != table.embedding_dim:
        raise ValueError(
            f"{flag}: needs vectors of width {table.embedding_dim}, the table's; got {width} in {path!r}. Use the "
            "embedding dimension of the file."
        )
    known = [word for word in vectors if dictionary.index(word) != dictionary.unk() or word == dictionary.unk_word]
    if not known:
        raise ValueError(
            f"{flag}: needs words of the dictionary; got {path!r}, which has none of its {len(dictionary):,} words. "
            "Use vectors of the words in dict.txt, spelled alike."
        )
    with torch.no_grad():
        for word in known:
            table.weight[dictionary.index(word)] = torch.from_numpy(vectors[word]).to(table.weight)
    logger.info(f"{flag}: {len(known):,} of {len(dictionary):,} words have a vector in {path}")


def first_given(*values: Any) -> Any:
    """The first value that is not None."""
    return next(value for value in values if value is not None)
