"""Source locations as text, for messages."""

from __future__ import annotations

from dlc.ir import ArrayAttr, Attribute, FileLineColLoc, FusedLoc, LocationAttr, NameLoc


def location_text(location: Attribute) -> str:
    """Return a location such as `model.py:12`."""
    return location_prefix(location).removesuffix(": ") or "an unknown location"


def location_prefix(location: Attribute) -> str:
    """Return a location as the prefix of a message, such as `model.py:12: `; empty for an unknown one."""
    match location:
        case FileLineColLoc(filename=file, line=line):
            return f"{file.data.rpartition('/')[2]}:{line.data}: "
        case NameLoc() as named:
            child = named.location
            return location_prefix(child) if isinstance(child, LocationAttr) else f"node {named.desc.data!r}: "
        case FusedLoc(locations=ArrayAttr(data=locations)) if locations:
            return location_prefix(locations[0])
        case _:
            return ""
