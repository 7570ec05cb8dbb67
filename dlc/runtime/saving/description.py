"""Descriptions of model files from their headers, also of files for other processors."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dlc.arrays import TensorInfo
from dlc.runtime.saving.container import VERSION, Container, invalid_header
from dlc.runtime.saving.header.program import guard_from_json, placement_from_json
from dlc.runtime.saving.header.tensor_info import info_from_json
from dlc.runtime.saving.header.value_types import value_info_from_json
from dlc.runtime.saving.header.values import text


@dataclass(frozen=True)
class ProgramDescription:
    """One program of a file: its inputs, its conditions on symbolic sizes, and the number of its kernels."""

    inputs: tuple[TensorInfo, ...]
    guards: tuple[str, ...]
    num_kernels: int


@dataclass(frozen=True)
class FileDescription:
    """The contents of a model file; weights that several programs share are stored and counted once.

    `mesh` names the mesh of a file whose inputs and outputs are shards, and the rank whose constants it contains; else None.
    """

    name: str
    target: str
    numerics: str
    version: int
    inputs: tuple[TensorInfo, ...]
    outputs: tuple[TensorInfo, ...]
    programs: tuple[ProgramDescription, ...]
    weight_bytes: int
    file_bytes: int
    mesh: str | None


def describe_file(path: Path) -> FileDescription:
    """Describe a file. Raises what Container.read raises."""
    container = Container.read(path)
    try:
        fields = container.model
        signature = fields.get("io_signature")
        fields = fields["program"] if signature is not None else fields
        is_program = signature is None and "specializations" not in fields
        inputs, outputs = (
            tuple(map(info_from_json if is_program else value_info_from_json, (signature or fields)[side]))
            for side in ("inputs", "outputs")
        )
        headers = list(_program_headers(fields))
        sections = {section for header in headers for *_, section in header["weights"]}
        return FileDescription(
            text(fields["name"]),
            container.common.target.name,
            container.common.numerics,
            VERSION,
            inputs,
            outputs,
            tuple(map(_program, headers)),
            sum(len(container.section(section)) for section in sections),
            path.stat().st_size,
            _mesh_text(headers[0]) if headers else None,
        )
    except (KeyError, TypeError, ValueError, IndexError, AttributeError) as error:
        raise invalid_header(path, error) from error


def _program_headers(fields: Mapping[str, Any]) -> Generator[Mapping[str, Any]]:
    """Yield the fields of each program of a model."""
    if "specializations" not in fields:
        yield fields
        return
    for *_, header in fields["specializations"]:
        yield from _program_headers(header)


def _program(fields: Mapping[str, Any]) -> ProgramDescription:
    inputs = tuple(map(info_from_json, fields["inputs"]))
    return ProgramDescription(inputs, tuple(str(guard_from_json(guard)) for guard in fields["guards"]), len(fields["kernels"]))


def _mesh_text(fields: Mapping[str, Any]) -> str | None:
    if fields["placement"] is None:
        return None
    placement = placement_from_json(*fields["placement"])
    return f"{placement.mesh}" if placement.rank is None else f"{placement.mesh}, rank {placement.rank}"
