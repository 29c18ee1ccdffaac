"""JSON files read as dataclasses: an error names the file and the field."""

import dataclasses
import json
import re
import sys
from collections.abc import Callable
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, TypeVar, Union, get_args, get_origin, get_type_hints

from fairseq_tiedemb.checkpoints.json_text import parse_json

T = TypeVar("T")
# The name of a table, a row or a column: also the name of a file.
Name = Annotated[str, "name"]
NAME = re.compile(r"\w[\w.,=+-]*")


def _is_number(value: Any) -> bool:
    # JSON may have integers that no float can hold.
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= sys.float_info.max


SIMPLE: dict[Any, tuple[str, Callable[[Any], bool]]] = {
    str: ("text", lambda value: isinstance(value, str) and value != ""),
    Name: ("letters, digits and any of _.,=+-", lambda value: isinstance(value, str) and bool(NAME.fullmatch(value))),
    bool: ("true or false", lambda value: isinstance(value, bool)),
    float: ("a finite number", _is_number),
    int: ("a whole number, 0 or more", lambda value: _is_number(value) and isinstance(value, int) and value >= 0),
}


def fault(path: Path, field: str, needs: str, value: Any) -> ValueError:
    """The error of a field with a wrong value."""
    got = "none" if value is None else repr(value)
    return ValueError(f"{path}: {field or 'it'}: needs {needs}; got {got}. Mend the file.")


def read(kind: type[T], path: Path, **given: Any) -> T:
    """Reads a JSON file as a dataclass, whose annotations say what the file needs; `given` attributes it does not have.

    Raises:
        ValueError: naming the file, and the line that is no JSON or the field that is missing, unknown or of another
            kind.
    """
    try:
        values = parse_json(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ValueError(f"{path}: needs a file that can be read; got {error.strerror}. Use another path.") from error
    except ValueError as error:  # no JSON, or no UTF-8
        raise ValueError(f"{path}: needs JSON; got a file that is none ({error}). Mend the file.") from error
    return of_object(kind, values, path, **given)


def of_object(kind: type[T], values: Any, path: Path, where: str = "", **given: Any) -> T:
    """Makes a dataclass of a JSON object; errors name `path` and the field, which begins with `where`."""
    if not isinstance(values, dict):
        raise fault(path, where, "an object, {...}", values)
    hints = get_type_hints(kind, include_extras=True)
    known = {field.name: field for field in dataclasses.fields(kind) if field.name not in given}  # type: ignore[arg-type]
    read_fields = {}
    for name, field in known.items():
        required = field.default is field.default_factory is dataclasses.MISSING
        if required or values.get(name) is not None:
            read_fields[name] = of_value(hints[name], values.get(name), path, f"{where}.{name}".removeprefix("."))
    for name in values:
        if name not in known:
            raise ValueError(
                f"{path}: {f'{where}.{name}'.removeprefix('.')}: needs a field that is known; got this. Remove it."
            )
    return kind(**read_fields, **given)


def of_value(kind: Any, value: Any, path: Path, where: str) -> Any:
    """A JSON value as the annotation `kind` describes it."""
    arguments = get_args(kind)
    if get_origin(kind) in (Union, UnionType):
        return of_value(next(each for each in arguments if each is not NoneType), value, path, where)
    if dataclasses.is_dataclass(kind):
        return of_object(kind, value, path, where)  # type: ignore[arg-type]
    if get_origin(kind) is dict:
        return _of_mapping(arguments, value, path, where)
    if get_origin(kind) is tuple:
        return _of_list(arguments[0], value, path, where)
    needs, holds = SIMPLE.get(kind, (f"one of {', '.join(map(str, arguments))}", lambda value: value in arguments))
    if not holds(value):
        raise fault(path, where, needs, value)
    return value


def write(values: Any, path: Path) -> None:
    """Writes a dataclass as JSON: the same values make the same bytes. None and empty objects are left out."""
    kept = _without_none(dataclasses.asdict(values))
    path.write_text(json.dumps(kept, indent=2, ensure_ascii=False, allow_nan=False) + "\n", encoding="utf-8")


def _without_none(value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    return {name: _without_none(each) for name, each in value.items() if each is not None and each != {}}


def _of_mapping(kinds: tuple[Any, ...], value: Any, path: Path, where: str) -> dict[Any, Any]:
    if not isinstance(value, dict):
        raise fault(path, where, "an object, {...}", value)
    for key in value:
        if kinds[0] is int and not key.isdecimal():
            raise fault(path, f"{where}.{key}", "the number of an epoch", key)
    return {kinds[0](key): of_value(kinds[1], each, path, f"{where}.{key}") for key, each in value.items()}


def _of_list(kind: Any, value: Any, path: Path, where: str) -> tuple[Any, ...]:
    if not isinstance(value, list):
        raise fault(path, where, "a list", value)
    return tuple(of_value(kind, each, path, f"{where}[{number}]") for number, each in enumerate(value))
