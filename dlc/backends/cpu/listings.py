"""LLVM IR and assembly code for a reader: without what is there for debuggers, which says where lines come from."""

from __future__ import annotations

import re

from dlc.backends.base import CodeListing

_DEBUG = re.compile(r"(?:,| ) ?!dbg !(?:DILocation\(line: (\d+), scope: !\d+\)|\d+)")
_LOC = re.compile(r"\t\.loc\t\d+ (\d+)")
# A line of assembly code that is an instruction, or a label that something may jump to.
_CODE = re.compile(r"\t[a-z]|[.\w$\"]+:")
# On AArch64 a hash without a space is a number's.
_COMMENT = re.compile(r"\s*(?:#+|//) .*$")
_DEBUG_LABEL = re.compile(r"\.L(?:tmp|func_(?:begin|end))\d+:")


def llvm_listing(text: str) -> CodeListing:
    """The functions of LLVM IR that has debug locations, and the line that each line names."""
    shown: list[str] = []
    lines: list[int] = []
    for line in text.partition("\n!llvm.dbg.cu")[0].strip().splitlines():
        found = _DEBUG.search(line)
        lines.append(int(found[1]) - 1 if found is not None and found[1] else -1)
        shown.append(_DEBUG.sub("", line))
    return CodeListing("llvm", "\n".join(shown) + "\n", lines=tuple(lines))


def asm_listing(text: str) -> CodeListing:
    """The instructions and labels of assembly code, and the line that each comes from, as debug information says."""
    shown: list[str] = []
    lines: list[int] = []
    current = -1
    for line in text.partition("\t.section\t.debug")[0].splitlines():
        if (found := _LOC.match(line)) is not None:
            current = int(found[1]) - 1
        elif _CODE.match(line) and not _DEBUG_LABEL.match(line):
            is_label = not line.startswith("\t")
            if is_label and not line.startswith("."):
                # A function begins where nothing is known yet.
                current = -1
            shown.append(_COMMENT.sub("", line))
            lines.append(-1 if is_label else current)
    return CodeListing("asm", "\n".join(shown) + "\n", lines=tuple(lines))
