"""Output layers: from features to token probabilities, one head per file.

    features h (N, D)  -- projection P -->  -- factor Q -->  head: probabilities of tokens

A model holds an ``OutputLayer``, whichever head it has. The contract of heads is ``fairseq_tiedemb.head.Head``;
``SharedEmbedding`` is one, the full softmax over one table. ``ours`` lists them, and ``registry`` takes heads of users.
"""

from ..head import Head as Head
from .bands import Bands as Bands
from .bands import embed_bands as embed_bands
from .bands import tie_bands as tie_bands
from .class_file import NamedClasses as NamedClasses
from .class_file import read_classes as read_classes
from .classes import ClassBased as ClassBased
from .counted import CountedHead as CountedHead
from .counted import unigram as unigram
from .joint import JointSpace as JointSpace
from .layer import OutputLayer as OutputLayer
from .mixture import Mixture as Mixture
from .negative_sampling import NegativeSampling as NegativeSampling
from .ours import ADAPTIVE as ADAPTIVE
from .ours import SOFTMAX as SOFTMAX
from .registry import OUTPUT_HEADS as OUTPUT_HEADS
from .registry import OutputHead as OutputHead
from .registry import Words as Words
from .registry import register_output_layer as register_output_layer
from .sampled import NoiseContrastive as NoiseContrastive
from .sampled import SampledSoftmax as SampledSoftmax
from .short_list import ShortList as ShortList
from .tree import BY_CLASSES as BY_CLASSES
from .tree import TREES as TREES
from .tree import Tree as Tree
