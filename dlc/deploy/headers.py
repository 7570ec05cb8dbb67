"""The header of a library: what its programs take and give, and how they are called."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from dlc.dims import Dim, Range
from dlc.runtime.cpu.artifact import Artifact
from dlc.runtime.cpu.sizing import symbols_of
from dlc.runtime.program.host_program import HostProgram
from dlc.runtime.program.open_program import OpenProgram
from dlc.runtime.saving.parts import Conditions

_CALL = re.compile(r"#ifndef DLC_CALL\n.*?\n#endif\n", re.DOTALL)
# So much is told of a value or a shape.
_MOST_TOLD = 100


@dataclass(frozen=True)
class Program:
    """A program, the defaults of its inputs, and what holds of the calls that it is for."""

    artifact: Artifact
    defaults: Mapping[str, NDArray[Any]]
    conditions: Conditions

    @property
    def symbols(self) -> Sequence[str]:
        """The sizes that a call gives."""
        return list(symbols_of(self.artifact.host))

    @property
    def decided(self) -> Sequence[str]:
        """The sizes that data decides."""
        return self.artifact.host.decided if isinstance(self.artifact.host, OpenProgram) else ()

    @property
    def takes_known_memory(self) -> bool:
        """Whether all calls take as much memory."""
        return not self.symbols and not self.decided

    def described(self) -> list[str]:
        """Its sizes, inputs and outputs."""
        host = self.artifact.host
        donors: Mapping[int, int] = host.donors if isinstance(host, HostProgram) else {}
        optional = [", or NULL" if info.name in self.defaults else "" for info in host.inputs]
        return [
            *(f"size {k}    {_plain(name)}{self._range_of(name)}" for k, name in enumerate(self.symbols)),
            *(
                f"input {k}   {_plain(str(i))}{or_null}"
                for k, (i, or_null) in enumerate(zip(host.inputs, optional, strict=True))
            ),
            *(f"output {k}  {_plain(str(info))}" for k, info in enumerate(host.outputs)),
            *(f"output {k} is written over input {d}, which is then written" for k, d in donors.items()),
        ]

    def told_later(self) -> list[str]:
        """What is to be known where data decides sizes."""
        if not self.decided:
            return []
        outputs = enumerate(self.artifact.host.outputs)
        own = [k for k, o in outputs for size in o.shape if Dim.lift(size).symbols() & {*self.decided}]
        named = ", ".join(f"outputs[{k}]" for k in dict.fromkeys(own)) or "none"
        return [
            "",
            f"Data decides {_plain(', '.join(self.decided))}: a call may take more memory than was answered before. It ends",
            "with 2 then, and is to be made again with call.needed bytes. Outputs of such sizes lie in the memory: the call",
            f"sets the addresses of {named}, and call.shapes says how large they are.",
        ]

    def _range_of(self, symbol: str) -> str:
        """What a size may be, if it is said."""
        host = self.artifact.host
        range_ = host.ranges.get(symbol) if isinstance(host, OpenProgram) else None
        return "" if range_ is None or range_ == Range() else f" in {range_}"


def header_text(name: str, programs: Sequence[Program], symbol: str, memory: int | None) -> str:
    """The header of a library of these programs; `memory` is how much a call takes at most, if that is known."""
    call = _CALL.search(Path(__file__).with_name("dlc.h").read_text("utf-8"))
    assert call is not None, "dlc.h declares the call"
    target, picked = programs[0].artifact.target, any(program.conditions for program in programs)
    sized = any(program.symbols for program in programs)
    lines = [
        f"{_plain(name)}, compiled by dlc for {target.name}, which is a processor of",
        f"{target.architecture} with {' '.join(target.features)}.",
        "",
        *(_listed(programs) if picked else (*programs[0].described(), "")),
        "Arrays are row after row, aligned as their elements; memory begins at a multiple of 64:",
        "",
        *(_giving(programs) if picked else ()),
        "    dlc_call call = {0};",
        *(["    call.given = given, call.given_count = sizeof given / sizeof *given;"] if picked else ()),
        f"    call.inputs = inputs, call.outputs = outputs{', call.sizes = sizes' if sized else ''};",
        f"    {symbol}(&call);                      // no memory yet: answers call.needed",
        "    call.memory = aligned_alloc(64, (call.needed + 63) / 64 * 64), call.bytes = call.needed;",
        f"    if ({symbol}(&call)) ...              // 0: done; codes are those of dlc.h, below 0 the model's own",
        *([] if picked else programs[0].told_later()),
        "",
        "Calls at once have memory of their own. A call runs on its own thread, or on threads of yours (`parallel`); dlc.h",
        f"(`dlc header`) runs it on threads of its own, and checks the processor: dlc_open_linked({symbol}, ...).",
    ]
    comment = "\n".join(f" * {line}".rstrip() for line in lines)
    known = "" if memory is None else f"#define {symbol.upper()}_BYTES {memory} /* of memory */\n"
    return f"""/*
{comment}
 */
#ifndef {symbol.upper()}_H
#define {symbol.upper()}_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {{
#endif

{call.group()}
{known}int64_t {symbol}(dlc_call *call);

#ifdef __cplusplus
}}
#endif
#endif
"""


def _listed(programs: Sequence[Program]) -> list[str]:
    """Programs, and what each is for."""
    count = "One program" if len(programs) == 1 else f"{len(programs)} programs"
    lines = [
        f"{count}: a call is of the first that is for what `given` of it says of inputs, their values or shapes. Where none",
        "is, it ends with 6 (DLC_SEVERAL_PROGRAMS), and call.unfit is the name of an input of which that is so.",
        "",
    ]
    for program in programs:
        told = ", ".join(_shortened(_plain(str(condition))) for condition in program.conditions)
        lines += [f"{f'for {told}' if told else 'for all others'}:", *(f"    {line}" for line in program.described())]
        lines += [f"    {line}".rstrip() for line in program.told_later()] + [""]
    return lines


def _giving(programs: Sequence[Program]) -> list[str]:
    """How a call says which program it is for."""
    one = next(program.conditions for program in programs if program.conditions)
    given = [
        f'{{"{_plain(name)}", value, sizeof value, NULL, 0}}'
        if isinstance(wanted, bytes)
        else f'{{"{_plain(name)}", NULL, 0, shape, {len(wanted)}}}'
        for name, wanted, _ in one
    ]
    return [f"    dlc_given given[] = {{{', '.join(given)}}};"]


def _shortened(text: str) -> str:
    return text if len(text) <= _MOST_TOLD else f"{text[:_MOST_TOLD]}..."


def _plain(text: str) -> str:
    """Text in a comment."""
    return re.sub(r"[^\x20-\x7e]", "?", text).replace("*/", "* /")
