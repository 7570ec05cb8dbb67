"""Memo tables, cleared after a compilation if they are larger than the next program is likely to reuse."""

from __future__ import annotations

from typing import Any

# Maximum entries that are kept for other programs; the entries of a large program are hardly ever used again.
_MAX_RETAINED_ENTRIES = 1 << 12
_tables: list[dict[Any, Any]] = []


def memo_table() -> dict[Any, Any]:
    """Return an empty dictionary for values that can be recomputed at any time."""
    table: dict[Any, Any] = {}
    _tables.append(table)
    return table


def clear_large_memo_tables() -> None:
    """Empty the large memo tables; called after a compilation, since they keep the attributes of the program alive.

    The garbage collector traverses live objects on each full collection, and three times at interpreter exit.
    """
    for table in _tables:
        if len(table) > _MAX_RETAINED_ENTRIES:
            table.clear()
