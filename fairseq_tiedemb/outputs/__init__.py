"""Output layers: from features to token probabilities, one head per file.

    features h (N, D)  -- projection P -->  -- factor Q -->  head: probabilities of tokens

Models hold an ``OutputLayer``, whatever its head is. Every head has

    scores(h)                   (*, V)  log-probabilities up to a constant per row
    loss(h, target, options)    summed over tokens or (N,), with gradients, without N x V in memory
    log_prob(h, target)         (N,)  of the target tokens only
    start_bias(log_prob)        sets the biases to a distribution over tokens
    tables()                    the output embeddings, by name
    by_target                   whether log_prob is cheaper than scores
    loss_is_its_own             whether a criterion that trains on scores would train another objective

``SharedEmbedding`` is the full softmax over one table, ``Bands`` the adaptive softmax. The other heads know the counts
of the training text and have a ``flag``, the option that selects them: ``Tree`` (hierarchical softmax), which has no
table, and the heads over a table (``CountedHead``): ``ClassBased``, ``ShortList``, ``NoiseContrastive`` and
``SampledSoftmax``. A head whose scores approximate log-probabilities has ``raw_scores(h, target)``, target logits only.
"""

from .bands import Bands as Bands
from .bands import embed_bands as embed_bands
from .bands import tie_bands as tie_bands
from .class_file import NamedClasses as NamedClasses
from .class_file import read_classes as read_classes
from .classes import ClassBased as ClassBased
from .counted import CountedHead as CountedHead
from .counted import unigram as unigram
from .layer import Head as Head
from .layer import OutputLayer as OutputLayer
from .layer import build_output as build_output
from .sampled import NoiseContrastive as NoiseContrastive
from .sampled import SampledSoftmax as SampledSoftmax
from .short_list import ShortList as ShortList
from .tree import BY_CLASSES as BY_CLASSES
from .tree import TREES as TREES
from .tree import Tree as Tree
