"""Names of a model's tensors as dumps have them."""

from __future__ import annotations

import re
from keyword import iskeyword


def identifier(name: str) -> str:
    """A name that dims.parse and MLIR read as one symbol."""
    text = re.sub(r"\W", "_", name, flags=re.ASCII)
    return f"_{text}" if not text or text[0].isdigit() or iskeyword(text) else text


def short_name(name: str) -> str | None:
    """What dumps call a value: the last part of a path, not too much of it, and no number, which printing adds."""
    parts = [part for part in re.split("[/;]", name) if part]
    return re.sub(r"(_\d*)+$", "", identifier(parts[-1] if parts else name)[:40]) or None
