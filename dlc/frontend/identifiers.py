"""Derive SSA names from the tensor names of a model."""

from __future__ import annotations

import re

from dlc.shapes.parsing import identifier


def short_name(name: str) -> str | None:
    """Return a short SSA name: the last path component, at most 40 characters, without a numeric suffix."""
    parts = [part for part in re.split("[/;]", name) if part]
    return re.sub(r"(_\d*)+$", "", identifier(parts[-1] if parts else name)[:40]) or None
