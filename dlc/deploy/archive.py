"""Static archives in the format of linkers: one object, with an index of the symbol that it defines."""

from __future__ import annotations

import struct


def archive(name: str, member: bytes, symbol: str) -> bytes:
    """Return an archive with one object that defines a symbol."""
    # GNU symbol index (big-endian): number of symbols, offset of the member of each, names.
    names = symbol.encode() + b"\0"
    index_size = 8 + len(names)
    # Longer names would need a separate name table.
    title = name.encode()[:15].decode(errors="ignore")
    start = 8 + _HEADER_BYTES + index_size + index_size % 2
    index = struct.pack(">II", 1, start) + names
    return b"!<arch>\n" + _member("", index) + _member(title, member)


_HEADER_BYTES = 60


def _member(name: str, data: bytes) -> bytes:
    """Return an archive member with its header, padded to an even size."""
    header = f"{name + '/':16}{0:<12}{0:<6}{0:<6}{644:<8}{len(data):<10}`\n".encode()
    return header + data + b"\n" * (len(data) % 2)
