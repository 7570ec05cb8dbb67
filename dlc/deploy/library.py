"""Write a compiled model as a shared library, an object or a static archive, with a C header."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from dlc.arrays import ALIGNMENT_BYTES
from dlc.deploy.archive import archive
from dlc.deploy.elf import ElfFunction, relocatable_object, shared_library
from dlc.deploy.headers import HeaderProgram, header_text
from dlc.errors import DlcError, UnsupportedError
from dlc.files.atomic_writes import atomic_write, atomic_write_text
from dlc.runtime.collectives.native_calls import COLLECTIVES
from dlc.runtime.cpu.artifact import Artifact
from dlc.runtime.cpu.code.entry_stub import entry_code
from dlc.runtime.cpu.program_image import function_in, memory_of
from dlc.runtime.models.model import Model
from dlc.runtime.models.specialized_model import SpecializedModel
from dlc.runtime.opencl.artifact import DeviceArtifact
from dlc.runtime.program.host_program import PythonCall, walk
from dlc.runtime.saving.checksum import choose_checksum
from dlc.runtime.saving.container import PAGE_BYTES, SectionRef, as_byte_view
from dlc.runtime.saving.variant_table import Conditions, SavedProgram, encode_variant_table
from dlc.target import architecture_of
from dlc.value_types import OBJECT_DTYPE

SUFFIXES = (".so", ".o", ".a")


def save_model(model: Model, path: Path) -> Path | None:
    """Write a model in the format of the path's suffix: a .dlc file, or a library (.so, .o, .a) with its C header.

    Return the path of the header, if any. Raises DlcError for another suffix, and what `Model.save` and `write_library` raise.
    """
    if path.suffix in SUFFIXES:
        return write_library(model, path)
    if path.suffix != ".dlc":
        raise DlcError(f"{path}: expected a name that ends in .dlc for dlc.load, or in {', '.join(SUFFIXES)} for C")
    model.save(path)
    return None


def write_library(model: Model, path: Path) -> Path:
    """Write a model in the format of the path's suffix (.so, .o or .a), and its C header (.h); return the path of the header.

    The library defines one symbol, `dlc_model_NAME`, after the file's name. For a model that is specialized at run time, it
    contains the specializations that calls have compiled so far; for one on a mesh, the program of a rank. Raises
    UnsupportedError for a model that partly runs in Python or has no program yet, and DlcError if a file cannot be written.
    """
    programs = _programs_of(model.program_of_process(), (), {})
    name = re.sub(r"\W", "_", path.stem, flags=re.ASCII)
    library = _Library(programs, f"dlc_model_{name}")
    function = library.function
    data = shared_library(function, path.name) if path.suffix == ".so" else relocatable_object(function)
    if path.suffix == ".a":
        data = archive(f"{name}.o", data, function.symbol)
    header = path.with_suffix(".h")
    with atomic_write(path) as file:
        file.write(data)
    atomic_write_text(header, header_text(model.name, programs, function.symbol, library.memory))
    return header


def runs_without_python(model: Model) -> bool:
    """Return whether a model consists of programs that need no Python."""
    try:
        return bool(_programs_of(model.program_of_process(), (), {}))
    except UnsupportedError:
        return False


def _programs_of(model: Model, conditions: Conditions, defaults: Mapping[str, NDArray[Any]]) -> list[HeaderProgram]:
    """Return the programs of a model, with `conditions` followed by their own conditions."""
    artifact, defaults = model.artifact, {**defaults, **model.defaults}
    if isinstance(artifact, Artifact):
        calls = [i for i, _ in walk(artifact.host.instructions) if isinstance(i, PythonCall)]
        python_calls = [f"{call.op} at {call.where}" for call in calls if call.op not in COLLECTIVES]
        if python_calls:
            raise UnsupportedError(
                f"{model.name}: a library cannot contain {', '.join(python_calls)}; call the model in Python, or save a .dlc"
            )
        program_defaults = {info.name: defaults[info.name] for info in artifact.host.inputs if info.name in defaults}
        return [HeaderProgram(artifact, program_defaults, conditions)]
    variants = artifact.choices if isinstance(artifact, SpecializedModel) else []
    if not variants:
        raise UnsupportedError(f"{model.name}: a library contains programs for a CPU; {_unsupported_error(model)}")
    return [
        program for variant in variants for program in _programs_of(variant.model, (*conditions, *variant.conditions), defaults)
    ]


def _unsupported_error(model: Model) -> str:
    """Return the reason why a model does not consist of CPU programs, with a remedy."""
    if model.artifact is None or isinstance(model.artifact, DeviceArtifact):
        return "this model was compiled for another target, or runs in Python: compile it for target cpu"
    if any(info.dtype == OBJECT_DTYPE for info in (*model.inputs, *model.outputs)):
        return "this model has strings, lists or None as inputs or outputs, which need Python: save it as .dlc"
    assert isinstance(model.artifact, SpecializedModel)
    if model.artifact.data_dependent_sizes:
        return "this model is specialized for data-dependent sizes, which needs Python: save it as .dlc"
    options = "--value, input_values" if model.values else "--shape, input_shapes"
    return f"this model is specialized for {model.artifact.key_text}: specify them ({options}), or call the model with each"


class _Library:
    """The content of a library: programs as one function, followed by their weights."""

    def __init__(self, programs: Sequence[HeaderProgram], symbol: str) -> None:
        self.programs, self.symbol = programs, symbol
        first = programs[0].artifact
        self.architecture, self.target = architecture_of(first.target), first.target
        self.checksum = choose_checksum(first.target, first.runtime)
        self.data, self.array_refs = self._layout()
        # The size of the code does not depend on the distance to the data.
        distance = self._join_blocks(self._blocks(0)).data_distance
        self.blocks = self._blocks(distance)
        self.function = self._join_blocks(self.blocks)

    @property
    def memory(self) -> int | None:
        """The maximum memory of a call in bytes; None if it depends on sizes."""
        is_static = all(program.has_static_memory for program in self.programs)
        return max(map(memory_of, self.blocks)) if is_static else None

    def _layout(self) -> tuple[bytes, list[list[SectionRef]]]:
        """Return the deduplicated arrays of all programs as one block, and references to the arrays of each program."""
        data, arrays_by_checksum, array_refs = (
            bytearray(),
            dict[int, list[tuple[memoryview, SectionRef]]](),
            list[list[SectionRef]](),
        )

        def place_array(array: NDArray[Any]) -> SectionRef:
            content = as_byte_view(array)
            checksum = self.checksum(content, 0)
            candidates = arrays_by_checksum.setdefault(checksum, [])
            for other, ref in candidates:
                if other == content:
                    return ref
            candidates.append((content, SectionRef(len(data), content.nbytes, checksum)))
            data.extend(content)
            data.extend(bytes(-len(data) % ALIGNMENT_BYTES))
            return candidates[-1][1]

        for program in self.programs:
            weights = [program.artifact.weights[info.name] for info in program.artifact.host.weights]
            array_refs.append(list(map(place_array, (*weights, *program.defaults.values()))))
        return bytes(data), array_refs

    def _blocks(self, distance: int) -> list[bytes]:
        """Return the blocks of the programs, each padded to pages; the data begins `distance` bytes after the first block."""
        blocks, offset = list[bytes](), 0
        for program, array_refs in zip(self.programs, self.array_refs, strict=True):
            refs = [ref._replace(distance=ref.distance + distance - offset) for ref in array_refs]
            weights = len(program.artifact.host.weights)
            defaults = dict(zip(program.defaults, refs[weights:], strict=True))
            blocks.append(program.artifact.image(refs[:weights], defaults))
            offset += len(blocks[-1]) + -len(blocks[-1]) % PAGE_BYTES
        return blocks

    def _join_blocks(self, blocks: Sequence[bytes]) -> ElfFunction:
        """Return the function that consists of these blocks and, if there are several, the code that selects one."""
        if len(blocks) == 1 and not self.programs[0].conditions:
            return ElfFunction(self.symbol, blocks[0], self.data, self.architecture)
        code, starts = bytearray(), list[int]()
        for block in blocks:
            starts.append(len(code))
            code += block + bytes(-len(block) % PAGE_BYTES)
        saved_programs = [
            SavedProgram(SectionRef(start - len(code), len(block), self.checksum(memoryview(block), 0)), program.conditions)
            for start, block, program in zip(starts, blocks, self.programs, strict=True)
        ]
        selection_offset = (
            starts[-1] + function_in(blocks[-1], self.programs[-1].artifact.runtime, "dlc_select_program") - len(code)
        )
        selection_table = encode_variant_table(saved_programs, entry_code(self.target.architecture, selection_offset))
        return ElfFunction(self.symbol, bytes(code) + selection_table, self.data, self.architecture, len(code))
