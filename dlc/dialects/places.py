"""Where an op comes from, as messages say it."""

from __future__ import annotations

from dlc.ir import ArrayAttr, Attribute, FileLineColLoc, FusedLoc, LocationAttr, NameLoc


def place(location: Attribute) -> str:
    """A location in front of a message: `model.py:12: `, nothing for an unknown one."""
    match location:
        case FileLineColLoc(filename=file, line=line):
            return f"{file.data.rpartition('/')[2]}:{line.data}: "
        case NameLoc() as named:
            inside = named.location
            return place(inside) if isinstance(inside, LocationAttr) else f"node {named.desc.data!r}: "
        case FusedLoc(locations=ArrayAttr(data=parts)) if parts:
            return place(parts[0])
        case _:
            return ""
