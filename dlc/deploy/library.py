"""A compiled model as a shared library, an object or an archive of one, with a header beside it that says how it is called.

    for any call     program · weights
    for different    program · program · … · what picks one of them · weights        runtime/saving/parts.py

Weights are there once, however many programs have them. The symbol is that of the program, or of what picks one.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from dlc.arrays import ALIGNMENT
from dlc.deploy.archive import archive
from dlc.deploy.elf import Function, relocatable_object, shared_library
from dlc.deploy.headers import Program, header_text
from dlc.errors import UnsupportedError
from dlc.files.whole_files import write_whole_text, written_whole
from dlc.forms import OBJECTS
from dlc.runtime.cpu.artifact import Artifact
from dlc.runtime.cpu.code.entry import entry_code
from dlc.runtime.cpu.image import function_in, memory_of
from dlc.runtime.models.model import Model
from dlc.runtime.models.saved_by_sizes import SavedBySizes
from dlc.runtime.models.variants import Variants
from dlc.runtime.opencl.artifact import DeviceArtifact
from dlc.runtime.program.host_program import Compute, walk
from dlc.runtime.saving.checksum import checksum_of
from dlc.runtime.saving.container import PAGE, Placed, bytes_of
from dlc.runtime.saving.parts import Conditions, Part, parts_block
from dlc.target import architecture_of

SUFFIXES = (".so", ".o", ".a")


def write_library(model: Model, path: Path) -> Path:
    """Writes a model as what the path's suffix says (.so, .o or .a), and beside it a header (.h), whose path is returned.

    The one symbol is `dlc_model_NAME`, of the file's name. Of a model that is compiled when it is called, for its values,
    shapes or sizes, it holds the programs that calls have made so far. Raises UnsupportedError for a model that Python runs a
    part of, or that has no program yet, and DlcError when a file cannot be written.
    """
    programs = _programs_of(model, (), {})
    name = re.sub(r"\W", "_", path.stem, flags=re.ASCII)
    library = _Library(programs, f"dlc_model_{name}")
    function = library.function
    data = shared_library(function, path.name) if path.suffix == ".so" else relocatable_object(function)
    if path.suffix == ".a":
        data = archive(f"{name}.o", data, function.symbol)
    header = path.with_suffix(".h")
    with written_whole(path) as file:
        file.write(data)
    write_whole_text(header, header_text(model.name, programs, function.symbol, library.memory))
    return header


def runs_without_python(model: Model) -> bool:
    """Whether a model is programs that serve its calls by themselves."""
    try:
        return bool(_programs_of(model, (), {}))
    except UnsupportedError:
        return False


def _programs_of(model: Model, conditions: Conditions, defaults: Mapping[str, NDArray[Any]]) -> list[Program]:
    """The programs that serve calls of a model for which these conditions hold."""
    artifact, defaults = model.artifact, {**defaults, **model.defaults}
    if isinstance(artifact, Artifact):
        computed = [f"{i.op} at {i.where}" for i, _ in walk(artifact.host.instructions) if isinstance(i, Compute)]
        if computed:
            raise UnsupportedError(f"{model.name}: only Python computes {', '.join(computed)}; save it as .dlc for Python")
        own = {info.name: defaults[info.name] for info in artifact.host.inputs if info.name in defaults}
        return [Program(artifact, own, conditions)]
    choices = artifact.choices if isinstance(artifact, Variants | SavedBySizes) else []
    if not choices:
        raise UnsupportedError(f"{model.name}: a library holds programs for the CPU; {_not_programs(model)}")
    return [program for c in choices for program in _programs_of(c.model, (*conditions, *c.conditions), defaults)]


def _not_programs(model: Model) -> str:
    """Why a model is not programs for the CPU, and what to do."""
    if model.artifact is None or isinstance(model.artifact, DeviceArtifact):
        return "this model was compiled for another target, or runs in Python: compile it for a target such as cpu"
    if any(info.dtype == OBJECTS for info in (*model.inputs, *model.outputs)):
        return "this model takes or returns text, lists or None, of which only Python makes tensors: save it as .dlc for Python"
    if isinstance(model.artifact, Variants):
        given = "--value, input_values" if model.values else "--shape, input_shapes"
        return (
            f"this model is compiled for {model.artifact.decided_by}: give them ({given}), or call it with all it is to serve"
        )
    if isinstance(model.artifact, SavedBySizes) and model.artifact.models.decide is not None:
        return "this model is compiled for sizes that data decides, of which only Python knows the program: save it as .dlc"
    return "this model is compiled for each set of sizes: give them (--shape, input_shapes), or call it with all it is to serve"


class _Library:
    """Programs as one function, with their weights behind it."""

    def __init__(self, programs: Sequence[Program], symbol: str) -> None:
        self.programs, self.symbol = programs, symbol
        first = programs[0].artifact
        self.architecture, self.target = architecture_of(first.target), first.target
        self.checksum = checksum_of(first.target, first.runtime)
        self.data, self.places = self._laid_out()
        # The code is as long whatever the distance is.
        distance = self._with_data_behind(self._blocks(0)).data_distance
        self.blocks = self._blocks(distance)
        self.function = self._with_data_behind(self.blocks)

    @property
    def memory(self) -> int | None:
        """How much a call takes at most; None if its sizes or data say it."""
        known = all(program.takes_known_memory for program in self.programs)
        return max(map(memory_of, self.blocks)) if known else None

    def _laid_out(self) -> tuple[bytes, list[list[Placed]]]:
        """The arrays of all programs one after the other, equal ones once, and for each program where its own are."""
        data, known, places = bytearray(), dict[int, list[tuple[memoryview, Placed]]](), list[list[Placed]]()

        def placed(array: NDArray[Any]) -> Placed:
            content = bytes_of(array)
            checksum = self.checksum(content, 0)
            alike = known.setdefault(checksum, [])
            for other, place in alike:
                if other == content:
                    return place
            alike.append((content, Placed(len(data), content.nbytes, checksum)))
            data.extend(content)
            data.extend(bytes(-len(data) % ALIGNMENT))
            return alike[-1][1]

        for program in self.programs:
            weights = [program.artifact.weights[info.name] for info in program.artifact.host.weights]
            places.append(list(map(placed, (*weights, *program.defaults.values()))))
        return bytes(data), places

    def _blocks(self, distance: int) -> list[bytes]:
        """The programs' blocks, each at a page, where data begins so far from the first."""
        blocks, at = list[bytes](), 0
        for program, places in zip(self.programs, self.places, strict=True):
            placed = [place._replace(distance=place.distance + distance - at) for place in places]
            weights = len(program.artifact.host.weights)
            defaults = dict(zip(program.defaults, placed[weights:], strict=True))
            blocks.append(program.artifact.image(placed[:weights], defaults))
            at += len(blocks[-1]) + -len(blocks[-1]) % PAGE
        return blocks

    def _with_data_behind(self, blocks: Sequence[bytes]) -> Function:
        if len(blocks) == 1 and not self.programs[0].conditions:
            return Function(self.symbol, blocks[0], self.data, self.architecture)
        code, starts = bytearray(), list[int]()
        for block in blocks:
            starts.append(len(code))
            code += block + bytes(-len(block) % PAGE)
        parts = [
            Part(Placed(start - len(code), len(block), self.checksum(memoryview(block), 0)), program.conditions)
            for start, block, program in zip(starts, blocks, self.programs, strict=True)
        ]
        pick = starts[-1] + function_in(blocks[-1], self.programs[-1].artifact.runtime, "dlc_pick") - len(code)
        picking = parts_block(parts, entry_code(self.target.architecture, pick))
        return Function(self.symbol, bytes(code) + picking, self.data, self.architecture, len(code))
