"""Derive identifiers for dumps and SSA values from the tensor names of a model."""

from __future__ import annotations

import re
from keyword import iskeyword


def identifier(name: str) -> str:
    """Return a name as an identifier that both `parse_size` and MLIR accept."""
    text = re.sub(r"\W", "_", name, flags=re.ASCII)
    return f"_{text}" if not text or text[0].isdigit() or iskeyword(text) else text


def short_name(name: str) -> str | None:
    """Return a short SSA name: the last path component, at most 40 characters, without a numeric suffix."""
    parts = [part for part in re.split("[/;]", name) if part]
    return re.sub(r"(_\d*)+$", "", identifier(parts[-1] if parts else name)[:40]) or None
