"""Who shares what: one pure function from a model's settings and its dictionaries to a plan without tensors.

A family of models says where its settings are (``Family``), and ``make_plan`` alone decides. Every model is built from
its plan and keeps it as ``model.plan``, which the log, ``fairseq-tiedemb arch`` and analyses read.
"""

# ruff: noqa: F401 (names of this folder)

from .plan import Plan, Table, make_plan
from .rules import check_every_option_is_used
from .settings import MERGED, THREE_WAY, TYING, Family, Settings, Widths
