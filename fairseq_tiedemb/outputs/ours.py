"""This package's values of ``--output-layer``, with their options."""

import dataclasses
from dataclasses import dataclass
from typing import Any, Optional

from torch import Tensor

from ..embedding import SharedEmbedding
from ..option_checks import POSITIVE, OneOf, Range, check_value, option
from .class_file import NamedClasses, read_classes
from .classes import ClassBased
from .joint import JointSpace
from .mixture import Mixture
from .negative_sampling import NOISE_FOR, NegativeSampling
from .registry import OutputHead, Words, register_output_layer
from .sampled import NoiseContrastive, SampledHead, SampledSoftmax
from .short_list import ShortList
from .tree import BY_CLASSES, TREES, Tree

SOFTMAX = "softmax"
ADAPTIVE = "adaptive"
SOME_WORDS = Range("1 word or more with --output-layer short-list", "2000, say", at_least=1)


@dataclass
class AdaptiveConfig:
    """Options of ``--output-layer adaptive``."""

    adaptive_softmax_cutoff: Optional[str] = option(
        None,
        "adaptive softmax: frequency ranks at which bands end, such as 2000,6000; tied input embeddings "
        "get the same bands; several processes need --ddp-backend legacy_ddp",
    )
    adaptive_softmax_factor: float = option(4.0, "adaptive softmax: ratio of the widths of consecutive bands")


@dataclass
class ClassFileConfig:
    """The classes of words that a file has."""

    class_file: Optional[str] = option(
        None,
        "for classes and --tree classes: file of word classes, with lines `word class`, or `bits word "
        "count` as Brown clustering and `fairseq-tiedemb classes` write them",
    )


@dataclass
class ClassesConfig(ClassFileConfig):
    """Options of ``--output-layer classes``."""

    classes: int = option(
        100,
        "for classes: number of word classes by frequency, with equal sums of square roots of counts",
        needs=Range("1 or more", "100", at_least=1),
    )


@dataclass
class ShortListConfig:
    """Options of ``--output-layer short-list``."""

    short_list: int = option(0, "for short-list (needed): number of most frequent words with logits of their own")
    short_list_shares: str = option(
        "counts",
        "for short-list: the other words share the probability of <unk> by their counts, or uniform: equally",
        needs=OneOf(("counts", "uniform"), "counts"),
    )


@dataclass
class NoiseConfig:
    """Options of the heads that are trained by noise words."""

    noise_samples: int = option(
        100,
        "for nce and sampled: number of noise words, per batch or, with --own-noise, per target word",
        needs=Range("1 to 1,000,000", "100", at_least=1, at_most=1_000_000),
    )
    noise_power: float = option(
        1.0,
        "for nce and sampled: noise is drawn by training counts to this power",
        # Of counts, which float64 has to hold.
        needs=Range("a number in [0, 10]", "1", at_least=0, at_most=10),
    )
    own_noise: bool = option(False, "for nce and sampled: draw noise per target word; default: per batch")


@dataclass
class NCEConfig(NoiseConfig):
    """Options of ``--output-layer nce``."""

    noise_log_z: float = option(
        0.0,
        "for nce: natural logarithm of the normaliser, which nce takes for a constant",
        # Beyond, differences of scores are lost in float32.
        needs=Range("a logarithm between -1000 and 1000", "0, or 9, say", at_least=-1000, at_most=1000),
    )


@dataclass
class TreeConfig(ClassFileConfig):
    """Options of ``--output-layer tree``."""

    tree: str = option(
        "huffman",
        "for tree: huffman (from training counts), balanced (equal depth) or classes (a tree of the word "
        "classes in --class-file, by their bits if they are bit strings, and a Huffman tree within a class)",
        needs=OneOf(tuple(TREES), "huffman"),
    )


@dataclass
class NegativeSamplingConfig:
    """Options of ``--output-layer negative-sampling``."""

    negatives: int = option(
        5,
        "negative sampling: number of noise words per target word",
        needs=Range("1 to 10,000", "5, say", at_least=1, at_most=10_000),
    )
    noise_power: float = option(
        0.75,
        "negative sampling: noise is drawn by counts to this power",
        needs=Range("a number in [0, 1]", "0.75, say", at_least=0, at_most=1),
    )
    noise_for: str = option(
        "block",
        "negative sampling: what shares its noise words: a block of 8 centres; the pairs of one centre "
        "(tied tables do not converge); or nothing, with noise per pair (slower; as in word2vec.c)",
        needs=OneOf(NOISE_FOR, "block"),
    )


@dataclass
class MixtureConfig:
    """Options of ``--output-layer mixture``."""

    mixtures: int = option(
        3, "for mixture: number of softmaxes", needs=Range("1 to 100", "3, say", at_least=1, at_most=100, whole=True)
    )


@dataclass
class JointConfig:
    """Options of ``--output-layer joint``."""

    joint_dim: Optional[int] = option(
        None, "for joint: width of the joint space of words and features; default: the table's", needs=POSITIVE
    )


def _specials(words: Words) -> tuple[int, int]:
    """fairseq's special symbols that are never predicted, ``<s>`` and ``<pad>``."""
    return words.bos(), words.pad()


def _classes(options: ClassesConfig, table: SharedEmbedding, counts: Tensor | None, words: Words) -> ClassBased:
    given, problem = _class_file(options, words)
    class_of = None if given is None else given.class_of
    return ClassBased(table, counts, _specials(words), classes=options.classes, class_of=class_of, problem=problem)


def _class_file(options: ClassFileConfig, words: Words) -> tuple[NamedClasses | None, ValueError | None]:
    """The classes of ``--class-file``, or the error that prevents them; a checkpoint may still bring classes."""
    try:
        return read_classes(options.class_file, words.indices, _specials(words)) if options.class_file else None, None
    except ValueError as error:
        return None, error


def _tree(options: TreeConfig, table: SharedEmbedding, counts: Tensor | None, words: Words) -> Tree:
    classes, problem = _class_file(options, words) if options.tree == BY_CLASSES else (None, None)
    # word2vec's tree has no biases, and a leaf for every symbol.
    bias = table.bias is not None
    specials, width = _specials(words) if bias else (), table.embedding_dim
    return Tree(len(words), width, counts, specials, bias=bias, kind=options.tree, classes=classes, problem=problem)


def _check_tree(options: TreeConfig) -> None:
    if options.tree == BY_CLASSES and not options.class_file:
        use = "`fairseq-tiedemb classes` to make one, or --tree huffman"
        raise ValueError(f"--tree {BY_CLASSES}: needs --class-file; got none. Use {use}.")


def _short_list(options: ShortListConfig, table: SharedEmbedding, counts: Tensor | None, words: Words) -> ShortList:
    rest: Any = {"unknown": words.unk(), "size": len(words), "uniform": options.short_list_shares == "uniform"}
    return ShortList(table, counts, _specials(words), length=options.short_list, **rest)


def _sampled(options: NoiseConfig, table: SharedEmbedding, counts: Tensor | None, words: Words) -> SampledHead:
    noise: Any = {"samples": options.noise_samples, "power": options.noise_power, "shared": not options.own_noise}
    if isinstance(options, NCEConfig):
        return NoiseContrastive(table, counts, _specials(words), log_z=options.noise_log_z, **noise)
    return SampledSoftmax(table, counts, _specials(words), **noise)


def _negative_sampling(
    options: NegativeSamplingConfig, table: SharedEmbedding, counts: Tensor | None, words: Words
) -> NegativeSampling:
    assert counts is not None  # word2vec's task counts words before a model is built
    return NegativeSampling(
        table, counts, negatives=options.negatives, power=options.noise_power, noise_for=options.noise_for
    )


# To add a layer of this package, add its options above and an entry here, before those whose options they extend.
OURS = (
    OutputHead(SOFTMAX, "the full softmax", lambda options, table, *_: table, extends=True),
    OutputHead(
        ADAPTIVE, "bands of words by frequency, each with a table of its own", None, AdaptiveConfig, extends=True
    ),
    OutputHead("classes", "first the word's class, then the word in it", _classes, ClassesConfig),
    OutputHead(
        "tree", "the hierarchical softmax, which shares no table", _tree, TreeConfig, _check_tree, over_table=False
    ),
    OutputHead(
        "short-list",
        "a softmax over the most frequent words, the others by shares of <unk>",
        _short_list,
        ShortListConfig,
        check=lambda options: check_value("--short-list", options.short_list, SOME_WORDS),
        # Words outside the list have no rows; <unk> has one. The head refuses a list of more than all words.
        own_rows=lambda options, size: min(options.short_list + 1, size),
    ),
    OutputHead("nce", "noise-contrastive estimation", _sampled, NCEConfig, extends=True),
    OutputHead("sampled", "the sampled softmax", _sampled, NoiseConfig, extends=True),
    OutputHead(
        "mixture",
        "a mixture of softmaxes over one table",
        lambda options, table, *_: Mixture(table, options.mixtures),
        MixtureConfig,
        extends=True,
    ),
    OutputHead(
        "joint",
        "a softmax over products in a space to which maps lead from the table and the features",
        lambda options, table, *_: JointSpace(table, options.joint_dim or table.embedding_dim),
        JointConfig,
        extends=True,
    ),
    OutputHead(
        "negative-sampling",
        "word2vec's, without probabilities",
        _negative_sampling,
        NegativeSamplingConfig,
        has_probabilities=False,
    ),
)
for _head in OURS:
    register_output_layer(dataclasses.replace(_head, has_flags=True))
