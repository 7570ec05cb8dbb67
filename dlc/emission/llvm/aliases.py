"""What LLVM is told of a kernel's buffers: they do not overlap.

    %v6 = load <16 x float>, ptr %v5, align 4, !alias.scope !2, !noalias !3

    !0 = distinct !{!0}                 the kernel
    !1 = distinct !{!1, !0}             its first buffer
    !2 = !{!1}                          what accesses of it are of
    !3 = !{!4, !7}                      and what they are not of: the others

Functions load the addresses of buffers, and only arguments can be `noalias`: LLVM's inliner would write the same for them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from dlc.ir import IndexType, func

# A number of metadata, or a text in quotes: a name, which may have such a number in it.
_NUMBER = re.compile(r'"[^"]*"|!(\d+)')


class Aliases:
    """The buffers among a kernel's arguments, each with three nodes of metadata."""

    def __init__(self, kernel: func.FuncOp) -> None:
        arguments = kernel.body.block.args
        buffers = [f"%a{k}" for k, argument in enumerate(arguments) if not isinstance(argument.type, IndexType)]
        self._first = {name: 1 + 3 * k for k, name in enumerate(buffers)}

    @property
    def nodes(self) -> int:
        """How many nodes of metadata they have, which are numbered from 0 on."""
        return 1 + 3 * len(self._first)

    def behind(self, buffer: str) -> str:
        """What stands behind an access of a buffer; nothing if it is local, since LLVM sees that."""
        first = self._first.get(buffer)
        return "" if first is None else f", !alias.scope !{first + 1}, !noalias !{first + 2}"

    def text(self) -> str:
        """The metadata, behind all functions of the kernel."""
        scopes, nodes = [f"!{first}" for first in self._first.values()], ["distinct !{!0}"]
        for scope in scopes:
            others = ", ".join(other for other in scopes if other != scope)
            nodes += [f"distinct !{{{scope}, !0}}", f"!{{{scope}}}", f"!{{{others}}}"]
        return "".join(f"!{k} = {node}\n" for k, node in enumerate(nodes))


def joined(texts: Iterable[str]) -> str:
    """Texts of kernels as one, in which each has its own numbers of metadata."""
    parts: list[str] = []
    used = 0
    for text in texts:
        first, numbers = used, [int(n) for n in _NUMBER.findall(text) if n]
        parts.append(_NUMBER.sub(lambda m, first=first: f"!{int(m[1]) + first}" if m[1] else m[0], text) if first else text)
        used += max(numbers, default=-1) + 1
    return "\n".join(parts)
