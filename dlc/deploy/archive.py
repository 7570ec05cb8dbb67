"""Archives of objects, as linkers take them: one member, with an index of the symbol that it defines."""

from __future__ import annotations

import struct


def archive(name: str, member: bytes, symbol: str) -> bytes:
    """An archive of an object that defines a symbol."""
    # GNU's index: how many symbols, where each one's member begins, the names; big-endian.
    names = symbol.encode() + b"\0"
    index_size = 8 + len(names)
    # Longer names would stand apart from their members.
    title = name.encode()[:15].decode(errors="ignore")
    start = 8 + _HEADER_BYTES + index_size + index_size % 2
    index = struct.pack(">II", 1, start) + names
    return b"!<arch>\n" + _member("", index) + _member(title, member)


_HEADER_BYTES = 60


def _member(name: str, data: bytes) -> bytes:
    header = f"{name + '/':16}{0:<12}{0:<6}{0:<6}{644:<8}{len(data):<10}`\n".encode()
    return header + data + b"\n" * (len(data) % 2)
