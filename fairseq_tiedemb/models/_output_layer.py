"""The output layers of language models: options, registry, and the token counts of the training text."""

# ruff: noqa: UP045 (fairseq's parser understands Optional[X], not X | None)

import dataclasses
import logging
from dataclasses import dataclass, field, fields
from typing import Any, Optional

import numpy as np
import torch
from fairseq.data import data_utils
from fairseq.dataclass import FairseqDataclass
from torch import Tensor, nn

from ..embedding import SharedEmbedding
from ..outputs import (
    BY_CLASSES,
    OUTPUT_HEADS,
    TREES,
    ClassBased,
    NamedClasses,
    NoiseContrastive,
    OutputHead,
    OutputLayer,
    SampledSoftmax,
    ShortList,
    Tree,
    build_output,
    read_classes,
    register_output_layer,
    unigram,
)
from ..sharing import sharing_method

logger = logging.getLogger(__name__)


SOFTMAX = "softmax"


@dataclass
class ClassFileConfig(FairseqDataclass):
    """The classes of words that a file has."""

    class_file: Optional[str] = field(
        default=None,
        metadata={
            "help": "for classes and --tree classes: file of word classes, with lines `word class`, or `bits word "
            "count` as Brown clustering and `fairseq-tiedemb classes` write them"
        },
    )


@dataclass
class ClassesConfig(ClassFileConfig):
    """Options of ``--output-layer classes``."""

    classes: int = field(
        default=100,
        metadata={
            "help": "for classes: number of word classes by frequency, with equal sums of square roots of counts"
        },
    )


@dataclass
class ShortListConfig(FairseqDataclass):
    """Options of ``--output-layer short-list``."""

    short_list: int = field(
        default=0,
        metadata={"help": "for short-list: number of most frequent words with logits of their own"},
    )


@dataclass
class NoiseConfig(FairseqDataclass):
    """Options of the heads that are trained by noise words."""

    noise_samples: int = field(default=100, metadata={"help": "for nce and sampled: number k of noise words"})
    noise_power: float = field(
        default=1.0, metadata={"help": "for nce and sampled: noise is drawn by training counts to this power"}
    )
    own_noise: bool = field(
        default=False, metadata={"help": "for nce and sampled: draw noise per target word; default: per batch"}
    )


@dataclass
class NCEConfig(NoiseConfig):
    """Options of ``--output-layer nce``."""

    noise_log_z: float = field(default=0.0, metadata={"help": "for nce: log of the constant normaliser"})


@dataclass
class TreeConfig(ClassFileConfig):
    """Options of ``--output-layer tree``."""

    tree: str = field(
        default="huffman",
        metadata={
            "help": "for tree: huffman (from training counts), balanced (equal depth) or classes (a tree of the word "
            "classes in --class-file, by their bits if they are bit strings, and a Huffman tree within a class)"
        },
    )


@dataclass
class OutputLayerConfig(TreeConfig, NCEConfig, ShortListConfig, ClassesConfig):
    """Options of a language model's output layer."""

    output_layer: str = field(
        default=SOFTMAX,
        metadata={"help": "softmax, or a cheaper layer: classes, short-list, nce, sampled or tree; or your own"},
    )
    output_layer_options: Optional[str] = field(
        default=None, metadata={"help": "options of a registered output layer, NAME=VALUE,..."}
    )
    output_bias_init: Optional[str] = field(
        default=None,
        metadata={
            "help": "initial output biases: zero, uniform (log 1/V) or unigram (log frequencies in the training text); "
            "default: random like all parameters for softmax, unigram for other output layers"
        },
    )


def _marks(words: Any) -> tuple[int, int]:
    """fairseq's special symbols that are never predicted, ``<s>`` and ``<pad>``."""
    return words.bos(), words.pad()


def _softmax(cfg: Any, table: SharedEmbedding, counts: Tensor | None, words: Any) -> SharedEmbedding:
    return table


def _classes(cfg: Any, table: SharedEmbedding, counts: Tensor | None, words: Any) -> ClassBased:
    given, problem = _class_file(cfg, words)
    class_of = None if given is None else given.class_of
    return ClassBased(table, counts, _marks(words), classes=cfg.classes, class_of=class_of, problem=problem)


def _class_file(cfg: Any, words: Any) -> tuple[NamedClasses | None, ValueError | None]:
    """The classes of ``--class-file``, or the error that prevents them; a checkpoint may still bring classes."""
    try:
        return read_classes(cfg.class_file, words.indices, _marks(words)) if cfg.class_file else None, None
    except ValueError as error:
        return None, error


def _tree(cfg: Any, table: SharedEmbedding, counts: Tensor | None, words: Any) -> Tree:
    classes, problem = _class_file(cfg, words) if cfg.tree == BY_CLASSES else (None, None)
    marks, width = _marks(words), table.embedding_dim
    return Tree(len(words), width, counts, marks, kind=cfg.tree, classes=classes, problem=problem)


def _short_list(cfg: Any, table: SharedEmbedding, counts: Tensor | None, words: Any) -> ShortList:
    return ShortList(table, counts, _marks(words), length=cfg.short_list, unknown=words.unk(), size=len(words))


def _check_short_list(cfg: Any) -> None:
    if cfg.short_list < 1:
        raise ValueError(
            f"--short-list: needs 1 word or more with --output-layer short-list; got {cfg.short_list}. Use 2000, say."
        )


def _nce(cfg: Any, table: SharedEmbedding, counts: Tensor | None, words: Any) -> NoiseContrastive:
    return NoiseContrastive(table, counts, _marks(words), log_z=cfg.noise_log_z, **_noise(cfg))


def _sampled(cfg: Any, table: SharedEmbedding, counts: Tensor | None, words: Any) -> SampledSoftmax:
    return SampledSoftmax(table, counts, _marks(words), **_noise(cfg))


def _noise(cfg: Any) -> dict[str, Any]:
    return {"samples": cfg.noise_samples, "power": cfg.noise_power, "shared": not cfg.own_noise}


# To add a layer of this package, add its options above and an entry here.
OURS = (
    OutputHead(SOFTMAX, "the full softmax", _softmax),
    OutputHead("classes", "first the word's class, then the word in it", _classes, ClassesConfig),
    OutputHead(
        "short-list",
        "a softmax over the most frequent words, the others by their counts",
        _short_list,
        ShortListConfig,
        check=_check_short_list,
        # Words outside the list have no rows; <unk> has one. The head refuses a list of more than all words.
        own_rows=lambda cfg, size: min(cfg.short_list + 1, size),
    ),
    OutputHead("nce", "noise-contrastive estimation", _nce, NCEConfig),
    OutputHead("sampled", "the sampled softmax", _sampled, NoiseConfig),
    OutputHead("tree", "the hierarchical softmax, which shares no table", _tree, TreeConfig, over_table=False),
)
for _head in OURS:
    register_output_layer(dataclasses.replace(_head, has_flags=True))
# Above it differences of scores are lost in float32.
LARGEST_LOG_Z = 1000
# Read at a time to count words.
SENTENCES = 1024
BIAS_STARTS = ("zero", "uniform", "unigram")
DEFAULTS = {option.name: option.default for option in fields(OutputLayerConfig)}
# The layers that have a use for each option.
LAYERS_OF: dict[str, list[str]] = {}
for _head in OURS:
    for _option in fields(_head.options):
        if _option.name != "_name":
            LAYERS_OF.setdefault(_option.name, []).append(_head.name)


def _options_of(cfg: Any) -> Any:
    """The options of the head that the model has."""
    head = OUTPUT_HEADS[cfg.output_layer]
    return cfg if head.has_flags else head.parse(cfg.output_layer_options)


def check_output_layer(cfg: Any) -> None:
    """Checks the options of the output layer.

    Raises:
        ValueError: naming the first that is out of range, or has no such choice.
    """
    head = OUTPUT_HEADS.find(cfg.output_layer, flag="--output-layer")
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
    if not abs(cfg.noise_log_z) <= LARGEST_LOG_Z:
        raise ValueError(
            f"--noise-log-z: needs a logarithm between -{LARGEST_LOG_Z} and {LARGEST_LOG_Z}; got {cfg.noise_log_z}. "
            "Use 0, or 9, say."
        )
    if cfg.tree not in TREES:
        raise ValueError(f"--tree: needs one of {', '.join(TREES)}; got {cfg.tree}. Use huffman.")
    if cfg.tree == BY_CLASSES and not cfg.class_file:
        raise ValueError(
            f"--tree {BY_CLASSES}: needs --class-file; got none. Use `fairseq-tiedemb classes` to make one, or --tree "
            "huffman."
        )
    head.check(_options_of(cfg))


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
    if cfg.output_layer_options and OUTPUT_HEADS[cfg.output_layer].has_flags:
        raise ValueError(
            f"--output-layer-options: needs a registered output layer; got {cfg.output_layer_options} with "
            f"--output-layer {cfg.output_layer}, whose options are flags. Leave it out."
        )
    if cfg.class_file and cfg.output_layer == "tree" and cfg.tree != BY_CLASSES:
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
        ValueError: for an output layer without a table that is to share one.
    """
    words, method = task.target_dictionary, cfg.sharing_method
    head, options = OUTPUT_HEADS[cfg.output_layer], _options_of(cfg)
    if not head.over_table:
        _check_nothing_is_shared(cfg, tied=tied)
    table = SharedEmbedding(len(words), cfg.decoder_embed_dim, words.pad(), method=method, bias=tied, scores=tied)
    own = table
    if not tied:
        rows, pad = (len(words), words.pad()) if head.own_rows is None else (head.own_rows(options, len(words)), None)
        width = features_dim if projection is None else projection.out_features
        own = SharedEmbedding(rows, width, pad, method=method, bias=True, embeds=False)
    over = head.build(options, own, None if head.name == SOFTMAX else training_counts(task), words)
    if not head.over_table:
        return table, OutputLayer(over, projection=projection)
    over_own = None if over is own else over
    return table, build_output(own, borrowed=tied, features_dim=features_dim, projection=projection, over=over_own)


def _check_nothing_is_shared(cfg: Any, *, tied: bool) -> None:
    """Checks that a model whose output layer scores words by no table shares none."""
    needs = f"--output-layer {cfg.output_layer}: needs {{}}, since it scores words by no table; got {{}}. Use {{}}"
    if tied:
        by_flag = cfg.share_decoder_input_output_embed
        got = "--share-decoder-input-output-embed" if by_flag else f"--arch {cfg._name}, which ties its embeddings"
        raise ValueError(
            needs.format("input embeddings of their own", got, "a model that is not tied, or another layer.")
        )
    if not sharing_method(cfg.sharing_method).is_plain:
        raise ValueError(needs.format("--sharing-method plain", cfg.sharing_method, "plain."))


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
