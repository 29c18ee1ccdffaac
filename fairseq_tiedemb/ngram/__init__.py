"""n-gram models in numpy alone: smoothing methods, one backed-off table for all, ARPA text, interpolation.

``text`` reads, ``counts`` counts, ``smoothing`` and ``jelinek_mercer`` say what is taken off the counts, ``model`` has
the table, ``arpa`` writes and reads it, ``word_scores`` what another model gave each word, and ``interpolation`` mixes.
``word_classes`` finds the classes of the class bigram model.

A sentence is <s> w_1 ... w_m </s>: no history reaches over <s>, and </s> is predicted. <unk> is a word like any other.
"""

from .counts import Level as Level
from .counts import count_ngrams as count_ngrams
from .interpolation import estimate_mixture as estimate_mixture
from .interpolation import mixture as mixture
from .model import BackoffModel as BackoffModel
from .model import KneserNey as KneserNey
from .model import SmoothedModel as SmoothedModel
from .smoothing import FALLBACK_DISCOUNTS as FALLBACK_DISCOUNTS
from .smoothing import SMOOTHINGS as SMOOTHINGS
from .smoothing import discounts as discounts
from .text import BOS as BOS
from .text import EOS as EOS
from .text import MARKS as MARKS
from .text import UNKNOWN as UNKNOWN
from .text import Vocabulary as Vocabulary
from .text import read_lines as read_lines
from .word_scores import WordScores as WordScores
from .word_scores import is_word_scores as is_word_scores
from .word_scores import read_word_scores as read_word_scores
from .word_scores import write_word_scores as write_word_scores
