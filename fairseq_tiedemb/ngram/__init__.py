"""n-gram language models in numpy alone: smoothing methods, back-off tables, ARPA files, interpolation.

``text`` reads tokens and ``counts`` counts n-grams; ``smoothing`` and ``jelinek_mercer`` discount the counts; ``model``
holds probabilities and back-off weights, and ``arpa`` writes and reads them. ``interpolation`` mixes models, also with
the token scores of another program (``word_scores``). ``word_classes`` clusters words for class bigram models.

A sentence is <s> w_1 ... w_m </s>: histories do not cross <s>, and </s> is predicted. <unk> is an ordinary word.
"""

from .interpolation import estimate_mixture as estimate_mixture
from .interpolation import mixture as mixture
from .model import BackoffModel as BackoffModel
from .model import SmoothedModel as SmoothedModel
from .smoothing import SMOOTHINGS as SMOOTHINGS
from .text import BOS as BOS
from .text import EOS as EOS
from .text import UNKNOWN as UNKNOWN
from .text import Vocabulary as Vocabulary
from .word_scores import WordScores as WordScores
from .word_scores import is_word_scores as is_word_scores
from .word_scores import read_word_scores as read_word_scores
from .word_scores import write_word_scores as write_word_scores
