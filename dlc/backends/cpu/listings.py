"""Listings of LLVM IR and assembly: remove debug information from the text, and extract its line numbers."""

from __future__ import annotations

import re

from dlc.backends.base import CodeListing

_DEBUG = re.compile(r"(?:,| ) ?!dbg !(?:DILocation\(line: (\d+), scope: !\d+\)|\d+)")
_LOC = re.compile(r"\t\.loc\t\d+ (\d+)")
# An instruction, or a label that may be a jump target.
_CODE = re.compile(r"\t[a-z]|[.\w$\"]+:")
# On AArch64, a hash without a following space begins an immediate operand.
_COMMENT = re.compile(r"\s*(?:#+|//) .*$")
_DEBUG_LABEL = re.compile(r"\.L(?:tmp|func_(?:begin|end))\d+:")


def llvm_listing(text: str) -> CodeListing:
    """Return the functions of LLVM IR with debug locations, and the line number of each line."""
    listing: list[str] = []
    lines: list[int] = []
    for line in text.partition("\n!llvm.dbg.cu")[0].strip().splitlines():
        match = _DEBUG.search(line)
        lines.append(int(match[1]) - 1 if match is not None and match[1] else -1)
        listing.append(_DEBUG.sub("", line))
    return CodeListing("llvm", "\n".join(listing) + "\n", lines=tuple(lines))


def asm_listing(text: str) -> CodeListing:
    """Return the instructions and labels of assembly, and the line number of each according to the debug information."""
    listing: list[str] = []
    lines: list[int] = []
    current = -1
    for line in text.partition("\t.section\t.debug")[0].splitlines():
        if (match := _LOC.match(line)) is not None:
            current = int(match[1]) - 1
        elif _CODE.match(line) and not _DEBUG_LABEL.match(line):
            is_label = not line.startswith("\t")
            if is_label and not line.startswith("."):
                # The lines at the start of a function have no location yet.
                current = -1
            listing.append(_COMMENT.sub("", line))
            lines.append(-1 if is_label else current)
    return CodeListing("asm", "\n".join(listing) + "\n", lines=tuple(lines))
