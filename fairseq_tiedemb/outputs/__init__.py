"""Output layers: from features to token probabilities, one head per file.

    features h (N, D)  -- projection P -->  -- factor Q -->  head: probabilities of tokens

A model holds an ``OutputLayer``, whichever head it has. The contract of heads is ``fairseq_tiedemb.head.Head``;
``SharedEmbedding`` is one, the full softmax over one table. ``ours`` lists them, and ``registry`` takes heads of users.
"""

# ruff: noqa: F401 (names of this folder)

from ..head import Head
from .bands import Bands, embed_bands, tie_bands
from .class_file import NamedClasses, read_classes
from .classes import ClassBased
from .counted import CountedHead, unigram
from .joint import JointSpace
from .layer import OutputLayer
from .mixture import Mixture
from .negative_sampling import NegativeSampling
from .ours import ADAPTIVE, SOFTMAX
from .registry import OUTPUT_HEADS, OutputHead, Words, register_output_layer
from .sampled import NoiseContrastive, SampledSoftmax
from .short_list import ShortList
from .tree import BY_CLASSES, TREES, Tree
