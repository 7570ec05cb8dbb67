"""Alias-scope metadata: the buffers of a kernel do not overlap.

    %v6 = load <16 x float>, ptr %v5, align 4, !alias.scope !2, !noalias !3

    !0 = distinct !{!0}                 the domain of the kernel
    !1 = distinct !{!1, !0}             the scope of its first buffer
    !2 = !{!1}                          the !alias.scope list of its accesses
    !3 = !{!4, !7}                      their !noalias list: the scopes of the other buffers

`noalias` applies only to pointer arguments, but kernels load the addresses of their buffers from memory. LLVM's inliner emits
the same metadata for `noalias` arguments.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from dlc.ir import IndexType, func

# A metadata ID; or a quoted name, which is matched so that an ID in it is skipped.
_METADATA_ID = re.compile(r'"[^"]*"|!(\d+)')


class AliasScopes:
    """The alias scopes of a kernel's buffer arguments; each has three metadata nodes."""

    def __init__(self, kernel: func.FuncOp) -> None:
        arguments = kernel.body.block.args
        buffers = [f"%a{k}" for k, argument in enumerate(arguments) if not isinstance(argument.type, IndexType)]
        self._first = {name: 1 + 3 * k for k, name in enumerate(buffers)}

    @property
    def nodes(self) -> int:
        """The number of metadata nodes; their IDs start at 0."""
        return 1 + 3 * len(self._first)

    def access_suffix(self, buffer: str) -> str:
        """Return the metadata of an access to a buffer; none for a local array, since LLVM infers that it does not alias."""
        first = self._first.get(buffer)
        return "" if first is None else f", !alias.scope !{first + 1}, !noalias !{first + 2}"

    def text(self) -> str:
        """Return the metadata definitions, which follow all functions of the kernel."""
        scopes, nodes = [f"!{first}" for first in self._first.values()], ["distinct !{!0}"]
        for scope in scopes:
            other_scopes = ", ".join(other for other in scopes if other != scope)
            nodes += [f"distinct !{{{scope}, !0}}", f"!{{{scope}}}", f"!{{{other_scopes}}}"]
        return "".join(f"!{k} = {node}\n" for k, node in enumerate(nodes))


def join_kernels(texts: Iterable[str]) -> str:
    """Join the texts of kernels into one, renumbering the metadata of each."""
    renumbered: list[str] = []
    num_ids = 0
    for text in texts:
        first, ids = num_ids, [int(n) for n in _METADATA_ID.findall(text) if n]
        renumbered.append(
            _METADATA_ID.sub(lambda m, first=first: f"!{int(m[1]) + first}" if m[1] else m[0], text) if first else text
        )
        num_ids += max(ids, default=-1) + 1
    return "\n".join(renumbered)
