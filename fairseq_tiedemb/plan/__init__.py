"""Who shares what: one pure function from a model's settings and its dictionaries to a plan without tensors.

A family of models says where its settings are (``Family``), and ``make_plan`` alone decides. Every model is built from
its plan and keeps it as ``model.plan``, which the log, ``fairseq-tiedemb arch`` and analyses read.
"""

from ..checkpoints.meaning import MERGED as MERGED
from ..checkpoints.meaning import THREE_WAY as THREE_WAY
from ..checkpoints.meaning import TYING as TYING
from .plan import Plan as Plan
from .plan import Table as Table
from .plan import make_plan as make_plan
from .rules import check_every_option_is_used as check_every_option_is_used
from .settings import Family as Family
from .settings import Settings as Settings
from .settings import Widths as Widths
