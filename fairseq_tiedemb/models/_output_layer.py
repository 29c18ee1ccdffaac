"""Which output layer a language model has: options, the registry of layers, the counts of the training text."""

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
    """Options of the output layer of a language model."""

    output_layer: str = field(default="softmax", metadata={"help": "what gives words their probabilities"})
    output_bias_init: Optional[str] = field(
        default=None,
        metadata={
            "help": "what the output biases start as: zero, uniform (log 1/V) or unigram (logarithms of the words' "
            "frequencies in the training text). Default: like all parameters with the full softmax, else unigram"
        },
    )
    classes: int = field(
        default=100,
        metadata={"help": "with classes: how many, by frequency; each has about the same sum of its counts' roots"},
    )
    class_file: Optional[str] = field(
        default=None,
        metadata={
            "help": "with classes: file of the words' classes instead, lines of a word and its class, or of bits, word "
            "and count as Brown clustering and `fairseq-tiedemb classes` write them; --tree classes needs it"
        },
    )
    short_list: int = field(
        default=0,
        metadata={"help": "with short-list: how many words, the most frequent, have scores of their own"},
    )
    noise_samples: int = field(default=100, metadata={"help": "noise words that a word is told from, k"})
    noise_power: float = field(
        default=1.0, metadata={"help": "noise words are drawn by their counts in the training text to this power"}
    )
    own_noise: bool = field(
        default=False, metadata={"help": "each word has noise of its own; without, all words of a batch share theirs"}
    )
    noise_log_z: float = field(
        default=0.0, metadata={"help": "with nce: logarithm of the number that stands for all normalisers"}
    )
    tree: str = field(
        default="huffman",
        metadata={
            "help": "of --output-layer tree: huffman, by the training text's counts; balanced, of equal depth; or "
            "classes, a tree of the classes of --class-file, by their bits if they have any, and Huffman's in each"
        },
    )


def _marks(words: Dictionary) -> tuple[int, int]:
    """fairseq's symbols that are no words."""
    return words.bos(), words.pad()


def _classes(cfg: Any, table: SharedEmbedding, counts: Tensor | None, words: Dictionary) -> CountedHead:
    given, problem = _class_file(cfg, words)
    class_of = None if given is None else given.class_of
    return ClassBased(table, counts, _marks(words), classes=cfg.classes, class_of=class_of, problem=problem)


def _class_file(cfg: Any, words: Dictionary) -> tuple[NamedClasses | None, ValueError | None]:
    """The classes of ``--class-file``, or why there are none: they may come with a checkpoint."""
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
    """A value of ``--output-layer`` whose head scores words by a table.

    Attributes:
        build: the head, of the options, the table, the counts of the training text and the dictionary.
        options: the names of its own options, which other layers have no use for.
        check: refuses what it cannot do, given the options.
        own_rows: how many rows a table has that is not shared, given the options; a row a word, if not given.
    """

    build: Callable[[Any, SharedEmbedding, Tensor | None, Dictionary], CountedHead]
    options: tuple[str, ...]
    check: Callable[[Any], None] = lambda cfg: None
    own_rows: Callable[[Any], int] | None = None


_NOISE = ("noise_samples", "noise_power", "own_noise")
# By the value of --output-layer; to add one, add an entry here.
HEADS = {
    "classes": HeadOverTable(_classes, ("classes", "class_file")),
    # Words outside the list have no rows; <unk> has one.
    "short-list": HeadOverTable(_short_list, ("short_list",), _check_short_list, lambda cfg: cfg.short_list + 1),
    "nce": HeadOverTable(_nce, (*_NOISE, "noise_log_z")),
    "sampled": HeadOverTable(_sampled, _NOISE),
}
SOFTMAX = "softmax"
TREE = "tree"
# Read at a time to count words.
SENTENCES = 1024
BIAS_STARTS = ("zero", "uniform", "unigram")
# Options of some layers, by the layers that have a use for them.
_OPTIONS = {**{layer: head.options for layer, head in HEADS.items()}, TREE: ("tree", "class_file")}
LAYERS_OF = {
    option: [layer for layer, options in _OPTIONS.items() if option in options]
    for option in dict.fromkeys(chain(*_OPTIONS.values()))
}
DEFAULTS = {each.name: each.default for each in fields(OutputLayerConfig)}


def check_output_layer(cfg: Any) -> None:
    """Checks the options of the output layer.

    Raises:
        ValueError: naming the first that is out of range, or has no such choice.
    """
    names = (SOFTMAX, *HEADS, TREE)
    if cfg.output_layer not in names:
        raise ValueError(f"--output-layer: needs one of {', '.join(names)}; got {cfg.output_layer}. Use softmax.")
    if cfg.output_bias_init not in (None, *BIAS_STARTS):
        raise ValueError(
            f"--output-bias-init: needs one of {', '.join(BIAS_STARTS)}; got {cfg.output_bias_init}. Use unigram."
        )
    if cfg.classes < 1:
        raise ValueError(f"--classes: needs 1 or more; got {cfg.classes}. Use 100.")
    if not 1 <= cfg.noise_samples <= 1_000_000:
        raise ValueError(f"--noise-samples: needs 1 to 1,000,000; got {cfg.noise_samples}. Use 100.")
    if not 0.0 <= cfg.noise_power <= 10.0:  # of counts, which float64 has to hold
        raise ValueError(f"--noise-power: needs a number in [0, 10]; got {cfg.noise_power}. Use 1.")
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
    """Checks, before a training, that the output layer has a use for each of its options.

    Not whenever a model is built: checkpoints of version 0.1.2 may have options that were ignored.

    Raises:
        ValueError: naming the first that it has none for.
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
    """The input table, and the output layer that ``--output-layer`` names.

    Args:
        cfg: options of the model.
        task: whose data tell the counts of words.
        tied: whether the output layer scores words by the input table.
        features_dim: width of the features.
        projection: P.

    Raises:
        ValueError: for a tree that is to share a table.
    """
    words, method = task.target_dictionary, cfg.sharing_method
    table = SharedEmbedding(len(words), cfg.decoder_embed_dim, words.pad(), method=method, bias=tied, scores=tied)
    own = table
    if not tied:
        own_rows = HEADS[cfg.output_layer].own_rows if cfg.output_layer in HEADS else None
        rows, pad = (len(words), words.pad()) if own_rows is None else (min(own_rows(cfg), len(words)), None)
        width = features_dim if projection is None else projection.out_features
        own = SharedEmbedding(rows, width, pad, method=method, bias=True, embeds=False)
    return table, _build_output_layer(cfg, task, own, tied=tied, features_dim=features_dim, projection=projection)


def _build_output_layer(
    cfg: Any, task: Any, table: SharedEmbedding, *, tied: bool, features_dim: int, projection: nn.Linear | None
) -> OutputLayer:
    """The output layer over a table, of which a tree takes the width alone."""
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
    """Sets the output biases as ``--output-bias-init`` says.

    Raises:
        ValueError: if the text's frequencies are asked for, and there is none.
    """
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
    """How often each word occurs in the binarised training text, all folders and shards of it; None without one.

    fairseq's dictionary does not know how often </s> and <unk> occur, 9% of the words of PTB.

    Args:
        task: with its options, as fairseq sets it up. The text is ``--train-subset`` where they have it, as those of
            this package's tasks do, else ``train``.
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
