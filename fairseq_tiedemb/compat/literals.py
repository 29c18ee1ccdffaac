"""Settings as values: what fairseq evaluates as code is read as literals."""

import ast
import operator
import sys
from collections.abc import Callable
from typing import Any

OPERATORS: dict[type, Callable[..., Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.USub: operator.neg,
    ast.UAdd: operator.pos,
}
LONGEST_LIST = 10_000


def parse_literal(text: str) -> Any:
    """Read a setting such as `"[(512, 3)] * 20"` as a value: numbers, text, lists, dicts, + - * /, and nothing else.

    Takes the place of the built-in `eval` in fairseq's modules, so it keeps its TypeError for what is no text, which
    `utils.eval_bool` expects.

    Args:
        text: a Python expression without names, calls, attributes or comprehensions.

    Raises:
        ValueError: it is anything else, or would build a list of more than 10,000 entries. Nothing of it is run.
    """
    if not isinstance(text, str):
        raise TypeError(f"parse_literal: needs text; got {text!r}")
    try:
        return _value(ast.parse(text.strip(), mode="eval").body)
    except (ValueError, SyntaxError, TypeError, ArithmeticError, RecursionError, MemoryError) as error:
        raise ValueError(
            f"setting in a checkpoint or on the command line: needs numbers, text, lists or dicts; got {text!r} "
            f"({error}). Anything else could run code, so nothing of it was run. "
            'Use a literal such as "[(512, 3)] * 4", or a checkpoint from a source you trust.'
        ) from None


def _value(node: ast.expr) -> Any:
    """The value of one node of a parsed literal."""
    match node:
        case ast.Constant(value=value):
            return value
        case ast.List(elts=items):
            return [_value(item) for item in items]
        case ast.Tuple(elts=items):
            return tuple(_value(item) for item in items)
        case ast.Set(elts=items):
            return {_value(item) for item in items}
        case ast.Dict(keys=keys, values=values) if None not in keys:
            return {_value(key): _value(value) for key, value in zip(keys, values, strict=True) if key is not None}
        case ast.UnaryOp(op=op, operand=operand) if type(op) in OPERATORS:
            return OPERATORS[type(op)](_value(operand))
        case ast.BinOp(left=left, op=op, right=right) if type(op) in OPERATORS:
            return _combine(OPERATORS[type(op)], _value(left), _value(right))
    raise ValueError(f"{type(node).__name__} is not allowed")


def _combine(combine: Callable[..., Any], left: Any, right: Any) -> Any:
    """Apply + - * / to two values, without building a huge list or text from a short expression."""
    if combine is operator.mul:
        for many, times in ((left, right), (right, left)):
            if hasattr(many, "__len__") and len(many) * times > LONGEST_LIST:
                raise ValueError(f"more than {LONGEST_LIST:,} entries")
    return combine(left, right)


def literal_settings() -> None:
    """Put `parse_literal` in the place of `eval` in fairseq's modules, where settings of a checkpoint reach it.

    Without it: a checkpoint that passes `weights_only` still runs code through a text such as its
    `adaptive_softmax_cutoff` (utils.py:791-810, models/transformer_lm.py:283, models/fconv.py:123 and 30 more places),
    when it is loaded. A module's own global comes before the built-in, so one name a module covers every place, and the
    copies made by `from fairseq.utils import eval_str_list` too. Goes when fairseq calls `eval` no more.
    """
    for name, module in list(sys.modules.items()):
        if name.partition(".")[0] == "fairseq":
            module.__dict__["eval"] = parse_literal
