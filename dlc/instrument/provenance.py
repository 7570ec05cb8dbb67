"""From an op back to what it came from: ONNX nodes, Python lines.

Ops of the host program carry their origins themselves. Ops inside a kernel carry a place, `loc("#2")`, in the list of
origins of each dispatch or launch that runs the kernel.
"""

from __future__ import annotations

from typing import Any, cast

import numpy as np

from dlc.dialects.dl.base import element_type_of
from dlc.dialects.dl.dtypes import numpy_dtype
from dlc.dialects.dl.programs.program import DispatchOp
from dlc.dialects.host import LaunchOp
from dlc.ir import ArrayAttr, Attribute, FileLineColLoc, FusedLoc, ModuleOp, NameLoc, all_of


def origins(location: Attribute) -> tuple[str, ...]:
    """The names in a location, in order; none for an unknown place."""
    match location:
        case NameLoc() as named:
            # A derivative has the place inside that it is the derivative of.
            inside = origins(named.location)
            return tuple(f"∂ {place}" for place in inside) or (named.desc.data,)
        case FileLineColLoc(filename=file, line=line):
            return (f"{file.data}:{line.data}",)
        case FusedLoc(locations=parts):
            return tuple(name for part in cast("ArrayAttr[Attribute]", parts) for name in origins(part))
        case _:
            return ()


def dispatches(module: ModuleOp) -> dict[str, list[tuple[str, ...]]]:
    """For each kernel, the origins of every dispatch or launch of it, in program order."""
    result: dict[str, list[tuple[str, ...]]] = {}
    for op in all_of(module, DispatchOp, LaunchOp):
        result.setdefault(op.symbol, []).append(origins(op.location))
    return result


def results_of(module: ModuleOp) -> dict[str, tuple[np.dtype[Any], ...]]:
    """The dtypes of what each kernel gives, as far as the module is one on tensors."""
    return {op.symbol: tuple(numpy_dtype(element_type_of(value)) for value in op.results) for op in all_of(module, DispatchOp)}


def header(kernel: str, runs: list[tuple[str, ...]]) -> str:
    """The comment above a dumped kernel: which layers it is, and what its places `#k` mean."""
    lines = [f'// kernel @{kernel}: {len(runs)} run{"s" * (len(runs) != 1)}; loc("#k") is the k-th origin of a run']
    for places in runs:
        lines.append("//   " + ", ".join(f"#{k} {name}" for k, name in enumerate(places)))
    return "\n".join(lines) + "\n"
