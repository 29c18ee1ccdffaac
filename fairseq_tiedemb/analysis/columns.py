"""Tables of text."""

from collections.abc import Sequence


def aligned(columns: Sequence[Sequence[str]]) -> list[str]:
    """Lines of columns, the first to the left, the others to the right."""
    widths = [max(map(len, column)) for column in columns]
    lines = []
    for first, *row in zip(*columns, strict=True):
        cells = [cell.rjust(width) for cell, width in zip(row, widths[1:], strict=True)]
        lines.append("  ".join([first.ljust(widths[0]), *cells]).rstrip())
    return lines
