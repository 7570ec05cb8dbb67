"""Serialization of host programs. Input is untrusted and validated."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from dlc.arrays import TensorInfo
from dlc.dims import is_static
from dlc.runtime.program.bounds import check_program
from dlc.runtime.program.dynamic_program import DynamicProgram
from dlc.runtime.program.host_program import HostProgram
from dlc.runtime.saving.header.dynamic_program import dynamic_fields_from_json, dynamic_fields_to_json
from dlc.runtime.saving.header.instructions import from_json, to_json
from dlc.runtime.saving.header.tensor_info import info_from_json, info_to_json
from dlc.runtime.saving.header.values import count


def program_to_json(host: HostProgram | DynamicProgram) -> dict[str, Any]:
    """Return all fields of a program except its weights."""
    inputs, outputs = (list(map(info_to_json, infos)) for infos in (host.inputs, host.outputs))
    program_fields = _static_to_json(host) if isinstance(host, HostProgram) else dynamic_fields_to_json(host)
    return {"inputs": inputs, "outputs": outputs, **program_fields}


def program_from_json(
    written: Mapping[str, Any], weights: tuple[TensorInfo, ...], dynamic_kernels: Collection[str], kernels: Collection[str]
) -> HostProgram | DynamicProgram:
    """Read a program with these weights and kernels; `dynamic_kernels` are the kernels that have size parameters.

    Raises ModelError, ValueError, TypeError or KeyError for invalid input.
    """
    inputs, outputs = (tuple(map(info_from_json, written[key])) for key in ("inputs", "outputs"))
    if "regions" in written:
        return DynamicProgram(inputs, outputs, weights, *dynamic_fields_from_json(written, dynamic_kernels))
    if not all(is_static(info.shape) for info in (*inputs, *outputs)):
        raise ValueError("a symbolic dimension in a static-shape program")
    instructions = from_json(written["instructions"])
    donors = {count(output): count(donor) for output, donor in written.get("donors", ())}
    host = HostProgram(inputs, outputs, weights, count(written["arena"]), count(written["slots"]), instructions, donors)
    check_program(host, kernels)
    return host


def _static_to_json(host: HostProgram) -> dict[str, Any]:
    donors = {"donors": list(host.donors.items())} if host.donors else {}
    return {"arena": host.arena_bytes, "slots": host.slots, "instructions": to_json(host.instructions), **donors}
