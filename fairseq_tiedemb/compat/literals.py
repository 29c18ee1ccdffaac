"""Parses settings as literals where fairseq evaluates them as code."""

import ast
import operator
import sys
from collections.abc import Callable, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from types import ModuleType
from typing import Any

from .mending import mend_now

PACKAGES = ("fairseq", "fairseq_cli")

OPERATORS: dict[type, Callable[..., Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.USub: operator.neg,
    ast.UAdd: operator.pos,
}
COLLECTIONS: dict[type, Callable[..., Any]] = {ast.List: list, ast.Tuple: tuple, ast.Set: set}
LONGEST_LIST = 10_000


def parse_literal(text: str) -> Any:
    """Parse a setting such as `"[(512, 3)] * 20"`: numbers, text, lists, dicts and + - * /, without names or calls.

    It replaces the built-in `eval` in fairseq's modules. TypeError if it is no text, as `utils.eval_bool` expects;
    ValueError for any other expression, which is not run, or a list of more than 10,000 entries.
    """
    if not isinstance(text, str):
        raise TypeError(f"parse_literal: needs text; got {text!r}")
    try:
        return _value(ast.parse(text.strip(), mode="eval").body)
    except (ValueError, SyntaxError, TypeError, ArithmeticError, RecursionError, MemoryError) as error:
        where, needs = "setting in a checkpoint or on the command line", "numbers, text, lists or dicts"
        got = f"{text!r} ({error}). Anything else could run code, so nothing of it was run"
        use = 'a literal such as "[(512, 3)] * 4", or a checkpoint from a source you trust'
        raise ValueError(f"{where}: needs {needs}; got {got}. Use {use}.") from None


def _value(node: ast.expr) -> Any:
    match node:
        case ast.Constant(value=value):
            return value
        case ast.List(elts=items) | ast.Tuple(elts=items) | ast.Set(elts=items):
            return COLLECTIONS[type(node)](map(_value, items))
        case ast.Dict(keys=keys, values=values) if None not in keys:
            return {_value(key): _value(value) for key, value in zip(keys, values, strict=True) if key is not None}
        case ast.UnaryOp(op=op, operand=operand) if type(op) in OPERATORS:
            return OPERATORS[type(op)](_value(operand))
        case ast.BinOp(left=left, op=op, right=right) if type(op) in OPERATORS:
            return _combine(OPERATORS[type(op)], _value(left), _value(right))
    raise ValueError(f"{type(node).__name__} is not allowed")


def _combine(combine: Callable[..., Any], left: Any, right: Any) -> Any:
    """Apply + - * / to two values, unless a short expression would build a huge list or text."""
    if combine is operator.mul:
        for many, times in ((left, right), (right, left)):
            if hasattr(many, "__len__") and len(many) * times > LONGEST_LIST:
                raise ValueError(f"more than {LONGEST_LIST:,} entries")
    return combine(left, right)


class LiteralModules(MetaPathFinder):
    """Gives `parse_literal` to fairseq's modules that are imported later, before they run."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname.partition(".")[0] not in PACKAGES:
            return None
        spec = PathFinder.find_spec(fullname, path, target)
        if isinstance(spec, ModuleSpec) and isinstance(spec.loader, SourceFileLoader):
            run = spec.loader.exec_module

            def exec_module(module: ModuleType) -> None:
                vars(module)["eval"] = parse_literal
                run(module)

            setattr(spec.loader, "exec_module", exec_module)  # noqa: B010 (mypy: no assignment to a method)
        return spec


@mend_now
def literal_settings() -> None:
    """Replace `eval` by `parse_literal` in the modules of fairseq and of its commands.

    Without it: a checkpoint that passes `weights_only` still runs code on loading, through a text such as its
    `adaptive_softmax_cutoff` (utils.py:791-810, models/transformer_lm.py:283, models/fconv.py:123 and 30 more places),
    and so does `fairseq-eval-lm --model-overrides` (fairseq_cli/eval_lm.py:255, validate.py:57). One global per module
    hides the built-in from all functions defined in it. Goes when fairseq no longer calls `eval`.
    """
    for name, module in list(sys.modules.items()):
        # A command run as `python -m fairseq_cli.eval_lm` is named __main__; its spec has the module's name.
        origin = getattr(getattr(module, "__spec__", None), "name", None) or name
        if origin.partition(".")[0] in PACKAGES and isinstance(module, ModuleType):
            vars(module)["eval"] = parse_literal
    sys.meta_path.insert(0, LiteralModules())
