"""Generate the C header of a library: the inputs, outputs and usage of its programs."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from dlc.runtime.cpu.artifact import Artifact
from dlc.runtime.saving.variant_table import AxisRange, Conditions
from dlc.shapes.dims import Dim
from dlc.shapes.ranges import SizeRange

_CALL = re.compile(r"#ifndef DLC_CALL\n.*?\n#endif\n", re.DOTALL)
# Descriptions of a value or shape are truncated to this length.
_MAX_DESCRIPTION_CHARACTERS = 100


@dataclass(frozen=True)
class HeaderProgram:
    """A program of a library, the defaults of its inputs, and the conditions under which a call runs it."""

    artifact: Artifact
    defaults: Mapping[str, NDArray[Any]]
    conditions: Conditions

    @property
    def symbols(self) -> Sequence[str]:
        """The names of the symbolic sizes."""
        return self.artifact.host.input_symbols

    @property
    def data_dependent_sizes(self) -> Sequence[str]:
        """The names of the data-dependent sizes."""
        return self.artifact.host.data_dependent_sizes

    @property
    def has_static_memory(self) -> bool:
        """Return whether all calls require the same amount of memory."""
        return not self.artifact.host.symbols

    def description(self) -> list[str]:
        """Return lines that describe the sizes, inputs and outputs."""
        host = self.artifact.host
        optional = [", or NULL" if info.name in self.defaults else "" for info in host.inputs]
        return [
            *(f"size {k}    {_comment_text(name)}{self._range_of(name)}" for k, name in enumerate(self.symbols)),
            *(
                f"input {k}   {_comment_text(str(i))}{or_null}"
                for k, (i, or_null) in enumerate(zip(host.inputs, optional, strict=True))
            ),
            *(f"output {k}  {_comment_text(str(info))}" for k, info in enumerate(host.outputs)),
            *(f"output {k} overwrites input {d}" for k, d in host.donors.items()),
        ]

    def mesh_notes(self, symbol: str) -> list[str]:
        """Return lines about the mesh, if there is one."""
        placement = self.artifact.host.placement
        if placement is None:
            return []
        rank = "each rank" if placement.rank is None else f"rank {placement.rank}"
        shardings = _comment_text("; ".join(spec or "()" for spec in placement.shardings))
        return [
            "",
            f"A program for {rank} of the mesh {_comment_text(str(placement.mesh))}: its arrays are shards, split over",
            f"{shardings}.",
            f"Collectives need dlc.h: dlc_open_linked({symbol}, ...) with `collectives` in dlc_options.",
        ]

    def data_dependent_notes(self) -> list[str]:
        """Return lines about data-dependent sizes, if there are any."""
        if not self.data_dependent_sizes:
            return []
        outputs = enumerate(self.artifact.host.outputs)
        output_indices = [k for k, o in outputs for size in o.shape if Dim.lift(size).symbols() & {*self.data_dependent_sizes}]
        output_names = ", ".join(f"outputs[{k}]" for k in dict.fromkeys(output_indices)) or "none"
        sizes = _comment_text(", ".join(self.data_dependent_sizes))
        return [
            "",
            f"Data-dependent sizes: {sizes}. A call may require more memory than was",
            "computed before. It returns 2 then; repeat it with call.required_bytes bytes. Outputs of such sizes are in the",
            f"memory of the call, which sets the addresses of {output_names}; call.shapes has their shapes.",
        ]

    def _range_of(self, symbol: str) -> str:
        """Return the declared range of a symbolic size as text."""
        range_ = self.artifact.host.ranges.get(symbol)
        return "" if range_ is None or range_ == SizeRange() else f" in {range_}"


def header_text(name: str, programs: Sequence[HeaderProgram], symbol: str, memory: int | None) -> str:
    """Return the header of a library of these programs; `memory` is the maximum memory of a call, if it is static."""
    call = _CALL.search(Path(__file__).with_name("dlc.h").read_text("utf-8"))
    assert call is not None, "dlc.h declares the call"
    target, has_conditions = programs[0].artifact.target, any(program.conditions for program in programs)
    has_symbols = any(program.symbols for program in programs)
    lines = [
        f"{_comment_text(name)}, compiled by dlc for {target.name}: {target.architecture}",
        f"with {' '.join(target.features)}.",
        "",
        *(_program_list(programs) if has_conditions else (*programs[0].description(), "")),
        "Arrays are row-major and aligned to their elements; memory is aligned to 64 bytes:",
        "",
        *(_selector_lines(programs) if has_conditions else ()),
        "    dlc_call call = {0};",
        *(
            ["    call.selectors = selectors, call.selector_count = sizeof selectors / sizeof *selectors;"]
            if has_conditions
            else ()
        ),
        f"    call.inputs = inputs, call.outputs = outputs{', call.sizes = sizes' if has_symbols else ''};",
        f"    {symbol}(&call);                      // without memory: computes call.required_bytes",
        "    call.memory = aligned_alloc(64, (call.required_bytes + 63) / 64 * 64), call.bytes = call.required_bytes;",
        f"    if ({symbol}(&call)) ...              // 0: success; codes of dlc.h; negative: failures of the model",
        *([] if has_conditions else programs[0].data_dependent_notes()),
        *programs[0].mesh_notes(symbol),
        "",
        "Concurrent calls need separate memory. A call runs on the calling thread, or on your threads (`parallel`). dlc.h",
        f"(`dlc header`) provides a thread pool and checks the processor: dlc_open_linked({symbol}, ...).",
    ]
    comment = "\n".join(f" * {line}".rstrip() for line in lines)
    size_macro = "" if memory is None else f"#define {symbol.upper()}_BYTES {memory} /* of memory */\n"
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
{size_macro}int64_t {symbol}(dlc_call *call);

#ifdef __cplusplus
}}
#endif
#endif
"""


def _program_list(programs: Sequence[HeaderProgram]) -> list[str]:
    """Return lines that describe the programs and their conditions."""
    count = "One program" if len(programs) == 1 else f"{len(programs)} programs"
    lines = [
        f"{count}: a call runs the first one whose conditions on the values or shapes of inputs match call.selectors. If none",
        "matches, it returns 6 (DLC_NO_PROGRAM), and call.unmatched_input is the name of an input that does not match.",
        "",
    ]
    for program in programs:
        conditions = ", ".join(_truncate(_comment_text(str(condition))) for condition in program.conditions)
        lines += [f"{f'for {conditions}' if conditions else 'otherwise'}:", *(f"    {line}" for line in program.description())]
        lines += [f"    {line}".rstrip() for line in program.data_dependent_notes()] + [""]
    return lines


def _selector_lines(programs: Sequence[HeaderProgram]) -> list[str]:
    """Return the declaration of the selectors that a call passes."""
    program = next(program for program in programs if program.conditions)
    ranks = {info.name: len(info.shape) for info in program.artifact.host.inputs}
    selectors: dict[str, str] = {}
    for name, expected, _ in program.conditions:
        if isinstance(expected, bytes):
            content = "value, sizeof value, NULL, 0"
        else:
            content = f"NULL, 0, shape, {ranks[name] if isinstance(expected, AxisRange) else len(expected)}"
        selectors[name] = f'{{"{_comment_text(name)}", {content}}}'
    return [f"    dlc_selector selectors[] = {{{', '.join(selectors.values())}}};"]


def _truncate(text: str) -> str:
    """Truncate a description."""
    return text if len(text) <= _MAX_DESCRIPTION_CHARACTERS else f"{text[:_MAX_DESCRIPTION_CHARACTERS]}..."


def _comment_text(text: str) -> str:
    """Return text that is safe in a C comment."""
    return re.sub(r"[^\x20-\x7e]", "?", text).replace("*/", "* /")
