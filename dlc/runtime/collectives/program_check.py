"""The check that all ranks run the same program on the same mesh with the same options."""

from __future__ import annotations

import hashlib
from collections import defaultdict
from dataclasses import fields
from itertools import zip_longest

from dlc.errors import DlcError
from dlc.options import Options
from dlc.runtime.collectives.transport import Transport

_MAX_SHOWN_CHARACTERS = 200
# Options that may differ between ranks: they do not change results.
_OPTIONS_OF_A_RANK = {"num_threads", "cpus", "workers", "cache", "dump_ir", "plan", "write_plan", "verify"}


def compared_options(options: Options) -> str:
    """Return the options that all ranks must share, one per line."""
    names = [field.name for field in fields(options) if field.name not in _OPTIONS_OF_A_RANK]
    return "\n".join(f"option {name}: {getattr(options, name)}" for name in names)


def require_equal_programs(transport: Transport, options: str, module: str) -> None:
    """Compare the mesh, the options and the text of the module between all ranks, which all call this.

    Raises DlcError on all ranks if they differ, with the ranks and the first line that differs.
    """
    mesh = f"mesh {transport.mesh}"
    text = "\n".join([mesh, *options.splitlines(), *module.splitlines()])
    digests = transport.exchange(hashlib.sha256(text.encode()).digest(), "the check before the first call of a program")
    if len(set(digests)) == 1:
        return
    ranks_by_digest: dict[bytes, list[int]] = defaultdict(list)
    for rank, digest in enumerate(digests):
        ranks_by_digest[digest].append(rank)
    ranks, other_ranks = list(ranks_by_digest.values())[:2]
    is_example = transport.rank in (ranks[0], other_ranks[0])
    texts = transport.exchange(text.encode() if is_example else b"", "comparison of programs")
    lines, other_lines = (texts[some[0]].decode().splitlines() for some in (ranks, other_ranks))
    pairs = zip_longest(lines, other_lines, fillvalue="(no line)")
    k, line, other_line = next((k, a, b) for k, (a, b) in enumerate(pairs) if a != b)
    header_line_count = 1 + len(options.splitlines())
    where = f"line {k - header_line_count + 1} of the module" if k >= header_line_count else "the mesh or the options"
    raise DlcError(
        f"ranks run different programs; the first difference is in {where}:\n"
        f"  {_describe(ranks)}: {line.strip()[:_MAX_SHOWN_CHARACTERS]}\n"
        f"  {_describe(other_ranks)}: {other_line.strip()[:_MAX_SHOWN_CHARACTERS]}"
    )


def _describe(ranks: list[int]) -> str:
    return f"rank{'s' if len(ranks) > 1 else ''} {', '.join(map(str, ranks))}"
