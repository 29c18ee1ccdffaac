"""Reading JSON files whose every fault is told with its file and its field."""

import json
import sys
from pathlib import Path
from typing import Any

# Integers of JSON may be larger, and then are no number for arithmetic.
LARGEST = sys.float_info.max


class Fields:
    """The fields of a JSON object, each taken once, by its kind.

    Args:
        values: the object.
        path: its file, for errors.
        where: the field that it stands in, for errors; empty for the file's own object.

    Raises:
        ValueError: if `values` is no object.
    """

    def __init__(self, values: Any, path: Path, where: str = "") -> None:
        self.path = path
        self.where = where
        if not isinstance(values, dict):
            raise ValueError(f"{path}: {where or 'it'}: needs an object, {{...}}; got {values!r}. Use one.")
        self.rest = dict(values)

    def name_of(self, field: str) -> str:
        """The whole name of a field, `figures.test.value`."""
        return f"{self.where}.{field}" if self.where else field

    def fault(self, field: str, needs: str, value: Any) -> ValueError:
        """The error of a field that has another value than it needs."""
        found = "none" if value is None else repr(value)
        return ValueError(f"{self.path}: {self.name_of(field)}: needs {needs}; got {found}. Mend the file.")

    def take(self, field: str, kind: type | tuple[type, ...], needs: str, *, optional: bool = False) -> Any:
        """Takes a field of a Python type.

        Raises:
            ValueError: naming file and field, if it is missing or of another type.
        """
        value = self.rest.pop(field, None)
        if value is None and optional:
            return None
        if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
            raise self.fault(field, needs, value)
        return value

    def text(self, field: str, *, optional: bool = False) -> Any:
        """Takes a text that is not empty."""
        value = self.take(field, str, "text", optional=optional)
        if value == "":
            raise self.fault(field, "text", value)
        return value

    def texts(self, field: str) -> tuple[str, ...]:
        """Takes a list of texts; empty if it is missing."""
        values = self.take(field, list, "a list of texts", optional=True) or []
        if not all(isinstance(value, str) for value in values):
            raise self.fault(field, "a list of texts", values)
        return tuple(values)

    def flag(self, field: str, *, optional: bool = False) -> Any:
        """Takes true or false."""
        return self.take(field, bool, "true or false", optional=optional)

    def number(self, field: str, *, optional: bool = False) -> Any:
        """Takes a finite number."""
        value = self.take(field, (int, float), "a finite number", optional=optional)
        if value is not None and not abs(value) <= LARGEST:
            raise self.fault(field, "a finite number", value)
        return value

    def count(self, field: str, *, optional: bool = False) -> Any:
        """Takes a whole number that is not negative."""
        value = self.take(field, int, "a whole number, 0 or more", optional=optional)
        if value is not None and not 0 <= value <= LARGEST:
            raise self.fault(field, "a whole number, 0 or more", value)
        return value

    def choice(self, field: str, choices: tuple[str, ...], *, optional: bool = False) -> Any:
        """Takes one of some texts."""
        value = self.take(field, str, f"one of {', '.join(choices)}", optional=optional)
        if value is not None and value not in choices:
            raise self.fault(field, f"one of {', '.join(choices)}", value)
        return value

    def object(self, field: str, *, optional: bool = False) -> "Fields":
        """Takes an object."""
        value = self.take(field, dict, "an object, {...}", optional=optional)
        return Fields(value or {}, self.path, self.name_of(field))

    def objects(self, field: str) -> list["Fields"]:
        """Takes a list of objects that is not empty."""
        values = self.take(field, list, "a list of objects")
        if not values:
            raise self.fault(field, "a list of objects", values)
        return [Fields(value, self.path, f"{self.name_of(field)}[{number}]") for number, value in enumerate(values)]

    def numbers(self) -> dict[str, Any]:
        """Takes all that is left, each a finite number."""
        return {field: self.number(field) for field in list(self.rest)}

    def end(self) -> None:
        """Checks that nothing is left.

        Raises:
            ValueError: naming the first field that nothing knows.
        """
        for field in self.rest:
            raise ValueError(f"{self.path}: {self.name_of(field)}: needs a field that is known; got this. Remove it.")


def read_object(path: Path) -> Fields:
    """Reads a JSON file that holds one object.

    Raises:
        ValueError: naming the file, and the line of what is no JSON.
    """
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ValueError(f"{path}: needs a file that can be read; got {error.strerror}. Use another path.") from error
    except (ValueError, RecursionError) as error:  # no JSON, no UTF-8, or an integer of thousands of digits
        raise ValueError(f"{path}: needs JSON; got a file that is none ({error}). Mend the file.") from error
    return Fields(values, path)


def write_object(values: dict[str, Any], path: Path) -> None:
    """Writes an object as JSON in the one form that the same values have; fields that are None are left out."""
    kept = {name: value for name, value in values.items() if value is not None}
    path.write_text(json.dumps(kept, indent=2, ensure_ascii=False, allow_nan=False) + "\n", encoding="utf-8")
