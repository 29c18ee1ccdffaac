"""JSON of any origin."""

import json
from typing import Any


def parse_json(text: str | bytes) -> Any:
    """`json.loads`, to which too deep a nesting is no JSON, as a number of too many digits is none.

    Raises:
        ValueError: if the text is no JSON, or none that Python can hold.
    """
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError("values nested too deep") from None
