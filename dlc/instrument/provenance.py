"""Trace an op back to its origins: ONNX nodes or Python lines.

Ops of the host program carry their origins themselves. An op inside a kernel has a location `loc("#2")`, an index into the list
of origins of each dispatch or launch of the kernel.
"""

from __future__ import annotations

from typing import Any, cast

import numpy as np

from dlc.dialects.dl.base import element_type_of
from dlc.dialects.dl.dtypes import numpy_dtype
from dlc.dialects.dl.programs.program import DispatchOp
from dlc.dialects.host import LaunchOp
from dlc.ir import ArrayAttr, Attribute, FileLineColLoc, FusedLoc, ModuleOp, NameLoc, walk_ops


def origins(location: Attribute) -> tuple[str, ...]:
    """Return the names in a location, in order; empty for an unknown location."""
    match location:
        case NameLoc() as location_with_name:
            # The location of a derivative contains the location of the differentiated op.
            inner_origins = origins(location_with_name.location)
            return tuple(f"∂ {origin}" for origin in inner_origins) or (location_with_name.desc.data,)
        case FileLineColLoc(filename=file, line=line):
            return (f"{file.data}:{line.data}",)
        case FusedLoc(locations=locations):
            return tuple(name for element in cast("ArrayAttr[Attribute]", locations) for name in origins(element))
        case _:
            return ()


def kernel_origins(module: ModuleOp) -> dict[str, list[tuple[str, ...]]]:
    """Return, for each kernel, the origins of every dispatch or launch in program order."""
    result: dict[str, list[tuple[str, ...]]] = {}
    for op in walk_ops(module, DispatchOp, LaunchOp):
        result.setdefault(op.symbol, []).append(origins(op.location))
    return result


def kernel_result_dtypes(module: ModuleOp) -> dict[str, tuple[np.dtype[Any], ...]]:
    """Return the dtypes of the results of each kernel that is dispatched on tensors."""
    return {
        op.symbol: tuple(numpy_dtype(element_type_of(value)) for value in op.results) for op in walk_ops(module, DispatchOp)
    }


def kernel_header(kernel: str, runs: list[tuple[str, ...]]) -> str:
    """Return the comment above a dumped kernel: its layers, and the meaning of its locations `#k`."""
    lines = [f'// kernel @{kernel}: {len(runs)} run{"s" * (len(runs) != 1)}; loc("#k") is the k-th origin of a run']
    for names in runs:
        lines.append("//   " + ", ".join(f"#{k} {name}" for k, name in enumerate(names)))
    return "\n".join(lines) + "\n"
