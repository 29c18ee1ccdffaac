"""The output layers of language models: options, registry, and the token counts of the training text."""

# ruff: noqa: UP045 (fairseq's parser understands Optional[X], not X | None)

import logging
from collections.abc import Callable
from dataclasses import dataclass, field, fields
from itertools import chain
from typing import Any, Optional

import numpy as np
import torch
from fairseq.data import Dictionary, data_utils
from fairseq.dataclass import FairseqDataclass
from torch import Tensor, nn

from ..embedding import SharedEmbedding
from ..outputs import (
    BY_CLASSES,
    TREES,
    ClassBased,
    CountedHead,
    NamedClasses,
    NoiseContrastive,
    OutputLayer,
    SampledSoftmax,
    ShortList,
    Tree,
    build_output,
    read_classes,
    unigram,
)
from ..sharing import sharing_method

logger = logging.getLogger(__name__)


@dataclass
class OutputLayerConfig(FairseqDataclass):
    """Options of a language model's output layer."""

    output_layer: str = field(
        default="softmax", metadata={"help": "softmax, or a cheaper layer: classes, short-list, nce, sampled or tree"}
    )
    output_bias_init: Optional[str] = field(
        default=None,
        metadata={
            "help": "initial output biases: zero, uniform (log 1/V) or unigram (log frequencies in the training text); "
            "default: random like all parameters for softmax, unigram for other output layers"
        },
    )
    classes: int = field(
        default=100,
        metadata={
            "help": "for classes: number of word classes by frequency, with equal sums of square roots of counts"
        },
    )
    class_file: Optional[str] = field(
        default=None,
        metadata={
            "help": "for classes and --tree classes: file of word classes, with lines `word class`, or `bits word "
            "count` as Brown clustering and `fairseq-tiedemb classes` write them"
        },
    )
    short_list: int = field(
        default=0,
        metadata={"help": "for short-list: number of most frequent words with logits of their own"},
    )
    noise_samples: int = field(default=100, metadata={"help": "for nce and sampled: number k of noise words"})
    noise_power: float = field(
        default=1.0, metadata={"help": "for nce and sampled: noise is drawn by training counts to this power"}
    )
    own_noise: bool = field(
        default=False, metadata={"help": "for nce and sampled: draw noise per target word; default: per batch"}
    )
    noise_log_z: float = field(default=0.0, metadata={"help": "for nce: log of the constant normaliser"})
    tree: str = field(
        default="huffman",
        metadata={
            "help": "for tree: huffman (from training counts), balanced (equal depth) or classes (a tree of the word "
            "classes in --class-file, by their bits if they are bit strings, and a Huffman tree within a class)"
        },
    )


def _marks(words: Dictionary) -> tuple[int, int]:
    """fairseq's special symbols that are never predicted, ``<s>`` and ``<pad>``."""
    return words.bos(), words.pad()


def _classes(cfg: Any, table: SharedEmbedding, counts: Tensor | None, words: Dictionary) -> CountedHead:
    given, problem = _class_file(cfg, words)
    class_of = None if given is None else given.class_of
    return ClassBased(table, counts, _marks(words), classes=cfg.classes, class_of=class_of, problem=problem)


def _class_file(cfg: Any, words: Dictionary) -> tuple[NamedClasses | None, ValueError | None]:
    """The classes of ``--class-file``, or the error that prevents them; a checkpoint may still bring classes."""
    try:
        return read_classes(cfg.class_file, words.indices, _marks(words)) if cfg.class_file else None, None
    except ValueError as error:
        return None, error


def _short_list(cfg: Any, table: SharedEmbedding, counts: Tensor | None, words: Dictionary) -> CountedHead:
    return ShortList(table, counts, _marks(words), length=cfg.short_list, unknown=words.unk(), size=len(words))


def _check_short_list(cfg: Any) -> None:
    if cfg.short_list < 1:
        raise ValueError(
            f"--short-list: needs 1 word or more with --output-layer short-list; got {cfg.short_list}. Use 2000, say."
        )


def _nce(cfg: Any, table: SharedEmbedding, counts: Tensor | None, words: Dictionary) -> CountedHead:
    return NoiseContrastive(table, counts, _marks(words), log_z=cfg.noise_log_z, **_noise(cfg))


def _sampled(cfg: Any, table: SharedEmbedding, counts: Tensor | None, words: Dictionary) -> CountedHead:
    return SampledSoftmax(table, counts, _marks(words), **_noise(cfg))


def _noise(cfg: Any) -> dict[str, Any]:
    return {"samples": cfg.noise_samples, "power": cfg.noise_power, "shared": not cfg.own_noise}


@dataclass(frozen=True)
class HeadOverTable:
    """A value of ``--output-layer`` whose head uses a table.

    Attributes:
        build: function of options, table, token counts and dictionary that returns the head.
        options: names of options that other output layers ignore.
        check: raises ValueError for options that the head does not support.
        own_rows: function from the options to the number of rows of an unshared table; None for V rows.
    """

    build: Callable[[Any, SharedEmbedding, Tensor | None, Dictionary], CountedHead]
    options: tuple[str, ...]
    check: Callable[[Any], None] = lambda cfg: None
    own_rows: Callable[[Any], int] | None = None


_NOISE = ("noise_samples", "noise_power", "own_noise")
# Values of --output-layer with a table; add an entry here to add an output layer.
HEADS = {
    "classes": HeadOverTable(_classes, ("classes", "class_file")),
    # The rows are those of the list and of <unk>.
    "short-list": HeadOverTable(_short_list, ("short_list",), _check_short_list, lambda cfg: cfg.short_list + 1),
    "nce": HeadOverTable(_nce, (*_NOISE, "noise_log_z")),
    "sampled": HeadOverTable(_sampled, _NOISE),
}
SOFTMAX = "softmax"
TREE = "tree"
# Sentences read at a time to count tokens.
SENTENCES = 1024
BIAS_STARTS = ("zero", "uniform", "unigram")
# Output layers and the options that only they use.
_OPTIONS = {**{layer: head.options for layer, head in HEADS.items()}, TREE: ("tree", "class_file")}
LAYERS_OF = {
    option: [layer for layer, options in _OPTIONS.items() if option in options]
    for option in dict.fromkeys(chain(*_OPTIONS.values()))
}
DEFAULTS = {option.name: option.default for option in fields(OutputLayerConfig)}


def check_output_layer(cfg: Any) -> None:
    """Raises ValueError for the first option of the output layer that is out of range or names an unknown choice."""
    names = (SOFTMAX, *HEADS, TREE)
    if cfg.output_layer not in names:
        raise ValueError(f"--output-layer: needs one of {', '.join(names)}; got {cfg.output_layer}. Use softmax.")
    if cfg.output_bias_init not in (None, *BIAS_STARTS):
        raise ValueError(
            f"--output-bias-init: needs one of {', '.join(BIAS_STARTS)}; got {cfg.output_bias_init}. Use unigram."
        )
    if cfg.classes < 1:
        raise ValueError(f"--classes: needs 1 or more; got {cfg.classes}. Use 100.")
    if cfg.noise_samples < 1:
        raise ValueError(f"--noise-samples: needs 1 or more; got {cfg.noise_samples}. Use 100.")
    if not 0.0 <= cfg.noise_power < float("inf"):
        raise ValueError(f"--noise-power: needs 0 or more; got {cfg.noise_power}. Use 1.")
    if not abs(cfg.noise_log_z) < float("inf"):
        raise ValueError(f"--noise-log-z: needs a finite number; got {cfg.noise_log_z}. Use 0.")
    if cfg.tree not in TREES:
        raise ValueError(f"--tree: needs one of {', '.join(TREES)}; got {cfg.tree}. Use huffman.")
    if cfg.tree == BY_CLASSES and not cfg.class_file:
        raise ValueError(
            f"--tree {BY_CLASSES}: needs --class-file; got none. Use `fairseq-tiedemb classes` to make one, or --tree "
            "huffman."
        )
    if cfg.output_layer in HEADS:
        HEADS[cfg.output_layer].check(cfg)


def check_every_option_is_used(cfg: Any) -> None:
    """Raises ValueError for the first option that the output layer ignores.

    Called before training only, because checkpoints of version 0.1.2 may hold ignored options.
    """
    for option, layers in LAYERS_OF.items():
        value, flag = getattr(cfg, option), "--" + option.replace("_", "-")
        if value != DEFAULTS[option] and cfg.output_layer not in layers:
            needs = " or ".join(layers)
            raise ValueError(
                f"{flag}: needs --output-layer {needs}; got {value} with --output-layer {cfg.output_layer}. Use "
                f"--output-layer {layers[0]}, or leave {flag} out."
            )
    if cfg.class_file and cfg.output_layer == TREE and cfg.tree != BY_CLASSES:
        raise ValueError(
            f"--class-file: needs --tree {BY_CLASSES}; got --tree {cfg.tree}. Use --tree {BY_CLASSES}, or leave "
            "--class-file out."
        )


def build_tables(
    cfg: Any, task: Any, *, tied: bool, features_dim: int, projection: nn.Linear | None
) -> tuple[SharedEmbedding, OutputLayer]:
    """Builds the input table and the output layer that ``--output-layer`` names.

    Args:
        cfg: options of the model.
        task: the task, whose data give the token counts.
        tied: whether the output layer uses the input table.
        features_dim: width of the features.
        projection: P.

    Raises:
        ValueError: for a tree with a shared table.
    """
    words, method = task.target_dictionary, cfg.sharing_method
    table = SharedEmbedding(len(words), cfg.decoder_embed_dim, words.pad(), method=method, bias=tied, scores=tied)
    own = table
    if not tied:
        own_rows = HEADS[cfg.output_layer].own_rows if cfg.output_layer in HEADS else None
        rows, pad = (len(words), words.pad()) if own_rows is None else (own_rows(cfg), None)
        width = features_dim if projection is None else projection.out_features
        own = SharedEmbedding(rows, width, pad, method=method, bias=True, embeds=False)
    return table, _build_output_layer(cfg, task, own, tied=tied, features_dim=features_dim, projection=projection)


def _build_output_layer(
    cfg: Any, task: Any, table: SharedEmbedding, *, tied: bool, features_dim: int, projection: nn.Linear | None
) -> OutputLayer:
    """The output layer over a table; a tree uses only the table's width."""
    if cfg.output_layer == TREE:
        return _build_tree(cfg, task, table, tied=tied, projection=projection)
    over = None
    if cfg.output_layer != SOFTMAX:
        over = HEADS[cfg.output_layer].build(cfg, table, training_counts(task), task.target_dictionary)
    return build_output(table, borrowed=tied, features_dim=features_dim, projection=projection, over=over)


def _build_tree(
    cfg: Any, task: Any, table: SharedEmbedding, *, tied: bool, projection: nn.Linear | None
) -> OutputLayer:
    needs = f"--output-layer {TREE}: needs {{}}, for the inner nodes of a tree are no words; got {{}}. Use {{}}"
    if tied:
        by_flag = cfg.share_decoder_input_output_embed
        got = "--share-decoder-input-output-embed" if by_flag else f"--arch {cfg._name}, which ties its embeddings"
        raise ValueError(
            needs.format("input embeddings of their own", got, "a model that is not tied, or another layer.")
        )
    if not sharing_method(table.method).is_plain:
        raise ValueError(needs.format("--sharing-method plain", table.method, "plain."))
    words = task.target_dictionary
    classes, problem = _class_file(cfg, words) if cfg.tree == BY_CLASSES else (None, None)
    counts, marks = training_counts(task), _marks(words)
    tree = Tree(len(words), table.embedding_dim, counts, marks, kind=cfg.tree, classes=classes, problem=problem)
    return OutputLayer(tree, projection=projection)


def start_biases(cfg: Any, task: Any, output: OutputLayer) -> None:
    """Initialises the output biases by ``--output-bias-init``; without a training text, unigram changes nothing."""
    start = cfg.output_bias_init or (None if cfg.output_layer == SOFTMAX else "unigram")
    if start is None:
        return
    size = len(task.target_dictionary)
    if start == "unigram":
        counts = training_counts(task)
        if counts is not None:  # else the biases come with a checkpoint
            output.start_bias(unigram(counts).log())
    else:
        output.start_bias(torch.full((size,), 1 / size).log() if start == "uniform" else None)


def training_counts(task: Any) -> Tensor | None:
    """Token counts (V,) of the binarised training text over all its folders and shards; None without a text.

    fairseq's dictionary lacks the counts of ``</s>`` and ``<unk>``, 9% of PTB's tokens. The split is ``--train-subset``
    for this package's tasks, else ``train``.
    """
    options = getattr(task, "args", None) or getattr(task, "cfg", None)
    folders = (getattr(options, "data", None) or "").split(":")
    split = getattr(options, "train_subset", None) or "train"
    dictionary = task.target_dictionary
    counts = np.zeros(len(dictionary), dtype=np.int64)
    for folder in filter(None, folders):
        text: Any = data_utils.load_indexed_dataset(f"{folder}/{split}", dictionary, combine=True)
        for first in range(0, 0 if text is None else len(text), SENTENCES):
            words = np.concatenate([text[index] for index in range(first, min(first + SENTENCES, len(text)))])
            counts += np.bincount(words, minlength=len(counts))
    return torch.from_numpy(counts) if counts.any() else None
