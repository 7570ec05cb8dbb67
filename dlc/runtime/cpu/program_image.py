"""Program images: a compiled program as one position-independent, read-only block that runs without Python.

    entry stub · "dlcimage" · header · tables · strings · code of the runtime and of the kernels

An image is a section of a model file and holds the only copy of the kernels' code. With the weights appended, it is all of a
shared library (`dlc.deploy`). Header fields and table entries are i64. Positions are byte offsets from the start of the image;
arrays are at positive or negative offsets. The meaning of each field is documented in call.ll, which calls a program, and in
dlc.h, which opens one; both declare the same fields in the same order.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass
from functools import lru_cache

from dlc.arrays import ALIGNMENT_BYTES, TensorInfo
from dlc.runtime.collectives.mesh import Mesh, RankPlacement
from dlc.runtime.collectives.operations import permute_routes
from dlc.runtime.cpu.code.entry_stub import ENTRY_BYTES, entry_code
from dlc.runtime.cpu.code.loader import CODE_ALIGNMENT, MachineCode, link_object
from dlc.runtime.cpu.data_dependent_sizes import size_tables
from dlc.runtime.cpu.kernel_object import KernelObject
from dlc.runtime.cpu.record_table import Task, assemble_records
from dlc.runtime.cpu.slot_inits import slot_inits
from dlc.runtime.program.host_program import Fail, HostProgram, PythonCall, PythonInstruction, SetSize
from dlc.runtime.program.size_operations import SizeOperations
from dlc.runtime.saving.container import VERSION, SectionRef
from dlc.target import Target, architecture_of, flags_of

MAGIC = b"dlcimage"
FIELDS = (
    *("version", "machine", "bytes", "checksum", "name", "features", "code"),  # Read by dlc.h.
    *("slots", "arena", "inputs", "outputs", "tensors", "dims", "dim_count", "operations", "operation_count"),
    *(
        "arrays",
        "weight_count",
        "slot_inits",
        "slot_init_count",
        "records",
        "symbol_count",
        "size_readbacks",
        "size_readback_count",
        "collectives_slot",
    ),
    *("collectives", "collective_count", "collective_numbers", "collective_number_count", "mesh_axes", "mesh_axis_count"),
    *("shardings", "sharding_count", "rank"),
    *("record_words", "array_count", "symbols", "failures", "failure_count", "failure_values", "failure_value_count", "text"),
    *("check_count", "requirements", "requirement_count", "kernels", "kernel_count", "entries", "entry_count", "code_bytes"),
    *("runtime_bytes", "call", "pool_bytes", "pool_init", "pool_worker", "pool_link", "pool_end", "crc32c"),
)
HEADER_BYTES = ENTRY_BYTES + len(MAGIC) + 8 * len(FIELDS)
# In the order of ONNX's TensorProto.DataType, from 1 on; 8 is the string type.
_DTYPES = (
    *("float32", "uint8", "int8", "uint16", "int16", "int32", "int64", "", "bool", "float16", "float64", "uint32", "uint64"),
    *("complex64", "complex128", "bfloat16", "float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz"),
    *("uint4", "int4", "float4_e2m1fn", "float8_e8m0fnu", "uint2", "int2"),
)
# The collectives and their combinators, in the order of the numbers that stand for them in dlc.h.
_COLLECTIVES = "all_reduce", "reduce_scatter", "all_gather", "all_to_all", "permute", "axis_index", "wait", "progress"
_COMBINATORS = "sum", "max", "min"
# The donor field of an output that is stored in the call's arena.
_IN_ARENA = -2
# Errors of calls without Python.
_NO_PRINTING = "the program contains dlc.debug.print, which needs Python; remove it"
_FAILED_COLLECTIVE = "{label}: its function in `collectives` of dlc_options failed"
_NO_PYTHON_OPS = "the program contains {op} ({where}), which needs Python"


@dataclass(frozen=True)
class ProgramImage:
    """The contents of a program image: the host program, its kernels and the object code of the runtime."""

    name: str
    target: Target
    host: HostProgram
    kernels: Sequence[KernelObject]
    runtime: bytes

    def encode(self, weights: Sequence[SectionRef], defaults: Mapping[str, SectionRef]) -> bytes:
        """Return the image, which refers to its `weights`, in order, and to `defaults` of inputs."""
        return _ImageWriter(self, weights, defaults).block()


def kernels_of(image: memoryview, target: Target) -> tuple[bytes, dict[str, tuple[tuple[int, ...], int]]]:
    """Return the code of an image's kernels, and for each kernel by name the offsets of its grids in the code and its size in
    bytes.

    Raises ValueError or IndexError for an invalid image, and for code of another architecture than the target's.
    """
    fields = _fields_of(image)
    if fields["machine"] != architecture_of(target).machine:
        raise ValueError(f"code for ELF machine {fields['machine']} in a program for {target.architecture}")

    def read_table(table: str, count: str, width: int) -> list[tuple[int, ...]]:
        start, end = fields[table], fields[table] + 8 * width * fields[count]
        if not 0 <= start <= end <= len(image):
            raise ValueError(f"{table} outside of the image")
        return list(struct.iter_unpack(f"<{width}q", image[start:end]))

    text = bytes(image[fields["text"] : fields["code"]])
    begin, end = fields["code"] + _aligned(fields["runtime_bytes"]), fields["code"] + fields["code_bytes"]
    code = bytes(image[begin:end])
    entries = [offset - begin for (offset,) in read_table("entries", "entry_count", 1)]
    if end > len(image) or not all(0 <= offset < len(code) for offset in entries):
        raise ValueError("a kernel outside of the image")
    return code, {
        text[name : text.index(b"\0", name)].decode(): (tuple(entries[first : first + count]), size)
        for name, _, size, first, count in read_table("kernels", "kernel_count", 5)
    }


def memory_of(image: bytes) -> int:
    """Return the bytes of memory that a call of a program without symbols needs."""
    fields = _fields_of(memoryview(image))
    kind, arena, _ = struct.unpack_from("<3q", image, fields["operations"] + 24 * fields["arena"])
    assert kind == 0, "a constant"
    return -(-8 * fields["slots"] // ALIGNMENT_BYTES) * ALIGNMENT_BYTES + arena


def function_in(image: bytes, runtime: bytes, name: str) -> int:
    """Return the offset of a function of the runtime in an image."""
    return _fields_of(memoryview(image))["code"] + linked_runtime(runtime).entries[name]


def _fields_of(image: memoryview) -> dict[str, int]:
    if len(image) < HEADER_BYTES or bytes(image[ENTRY_BYTES : ENTRY_BYTES + len(MAGIC)]) != MAGIC:
        raise ValueError("not a program image")
    values = struct.unpack_from(f"<{len(FIELDS)}q", image, HEADER_BYTES - 8 * len(FIELDS))
    return dict(zip(FIELDS, values, strict=True))


@lru_cache
def linked_runtime(object: bytes) -> MachineCode:
    """Return the relocated code of the runtime."""
    return link_object(object)


class _ImageWriter:
    def __init__(self, program: ProgramImage, weights: Sequence[SectionRef], defaults: Mapping[str, SectionRef]) -> None:
        self.program, self.host = program, program.host
        self.weights, self.defaults = weights, defaults
        self.size_operations = SizeOperations(self.host)
        self.bytecode = assemble_records(self.host.instructions, self.host.slots, {k.name: k.tasks for k in program.kernels})
        self.sizes = self.size_operations.code
        self.fields: dict[str, int] = {}
        self.tables = bytearray()
        self.text = bytearray()
        self.runtime = linked_runtime(program.runtime)
        self.code = bytearray(self.runtime.bytes)
        offset_of_code = {code: self._append_code(code) for code in dict.fromkeys(kernel.code for kernel in program.kernels)}
        self.kernels = [(k, [offset_of_code[k.code] + offset for offset in k.entries]) for k in program.kernels]
        self.entries = {(k.name, grid): offset for k, entries in self.kernels for grid, offset in enumerate(entries)}

    def _append_code(self, code: bytes) -> int:
        """Append kernel code and return its offset."""
        offset = _aligned(len(self.code))
        self.code += bytes(offset - len(self.code)) + code
        return offset

    def block(self) -> bytes:
        tensors, dims = self._tensors()
        inits, self.fields["arena"] = slot_inits(
            self.size_operations, self.bytecode, self.size_operations.data_dependent_outputs()
        )
        failures, failure_values = self._failures()
        symbols = [(self._text(symbol), *self.size_operations.bounds(symbol)) for symbol in self.host.input_symbols]
        self.fields |= {"slots": self.bytecode.slots, "version": VERSION, "name": self._text(self.program.name)}
        self.fields["machine"] = architecture_of(self.program.target).machine
        self.fields |= {"features": self._text(" ".join(flags_of(self.program.target)))}
        self._table("dims", "dim_count", [(dim,) for dim in dims])
        self.fields["operation_count"] = len(self.sizes.operations)
        operations, readbacks = size_tables(self.size_operations, self.bytecode)
        self.fields["check_count"] = len(operations) - len(self.sizes.operations)
        self._table("operations", None, operations)
        self._table("arrays", "array_count", [*self.weights, *self.defaults.values()])
        self.fields["weight_count"] = len(self.weights)
        self._table("slot_inits", "slot_init_count", inits)
        self._table("size_readbacks", "size_readback_count", list(map(astuple, readbacks)))
        self._table("symbols", "symbol_count", symbols)
        requirements = [(self._text(text),) for text in self.size_operations.requirements]
        self._table("requirements", "requirement_count", requirements)
        self._table("failures", "failure_count", failures)
        self._table("failure_values", "failure_value_count", failure_values)
        self._table("tensors", None, tensors)
        self._mesh()
        names = [self._text(kernel.name) for kernel, _ in self.kernels]
        self._records_and_kernels(names)
        return self._written()

    def _tensors(self) -> tuple[list[tuple[int, ...]], list[int]]:
        """Return the table of inputs and outputs, and the indices of the operations that compute their sizes."""
        rows, dims = list[tuple[int, ...]](), list[int]()
        infos = [(i, self.defaults[i.name].distance if i.name in self.defaults else 0, -1) for i in self.host.inputs]
        in_arena = dict.fromkeys((k for _, k in self.size_operations.data_dependent_outputs()), _IN_ARENA)
        infos += [(info, 0, {**self.host.donors, **in_arena}.get(k, -1)) for k, info in enumerate(self.host.outputs)]
        for info, default, donor in infos:
            rows.append((self._text(info.name), *_element(info), len(info.shape), len(dims), default, donor))
            dims += map(self.sizes.operation_of, info.shape)
        self.fields |= {"inputs": len(self.host.inputs), "outputs": len(self.host.outputs)}
        return rows, dims

    def _failures(self) -> tuple[list[tuple[int, int, int]], list[tuple[int, int]]]:
        """Return the table of error messages, and the references to the values that are formatted into them."""
        rows, value_refs = list[tuple[int, int, int]](), list[tuple[int, int]]()
        for instruction, _ in self.bytecode.stops:
            is_fail = isinstance(instruction, Fail)
            message = instruction.message if is_fail else _python_required_message(instruction)
            values = instruction.values if is_fail else ()
            rows.append((self._text(message), len(value_refs), len(values)))
            value_refs += values
        return rows, value_refs

    def _mesh(self) -> None:
        """Add the tables of the mesh and of the collectives that its ranks run."""
        placement = self.host.placement or RankPlacement(Mesh(()), None, ())
        axis_numbers = {name: number for number, (name, _) in enumerate(placement.mesh.axes)}
        rows, numbers = list[tuple[int, ...]](), list[int]()
        for call in self.bytecode.collectives:
            settings, axes = call.settings, [axis_numbers[name] for name in str(call.settings["axes"]).split()]
            assert not any(settings.get(name) for name in ("axis", "split_axis", "concat_axis")), "parts along axis 0"
            routes = permute_routes(str(settings.get("pairs", "")))
            operands = call.arguments[: len(call.results)]
            dtype = max((_element(TensorInfo("", operand.shape, operand.dtype))[0] for operand in operands), default=0)
            kinds = _COLLECTIVES.index(call.op), _COMBINATORS.index(str(settings.get("combine", "sum"))), dtype
            sizes = [sum(int(array.bytes) for array in arrays) for arrays in (operands, call.results)]
            rows.append((*kinds, *sizes, self._text(str(settings["label"])), len(numbers), len(axes), len(routes)))
            numbers += [*axes, *(position for route in routes for position in route)]
        self.fields |= {"collectives_slot": self.bytecode.collectives_slot or 0}
        self.fields |= {"rank": -1 if placement.rank is None else placement.rank}
        self._table("collectives", "collective_count", rows)
        self._table("collective_numbers", "collective_number_count", [(number,) for number in numbers])
        self._table("mesh_axes", "mesh_axis_count", [(self._text(name), size) for name, size in placement.mesh.axes])
        self._table("shardings", "sharding_count", [(self._text(spec),) for spec in placement.shardings])

    def _text(self, text: str) -> int:
        offset = len(self.text)
        self.text += text.replace("\0", "").encode(errors="replace") + b"\0"
        return offset

    def _table(self, field: str, count: str | None, rows: Sequence[Sequence[int]]) -> None:
        self.fields[field] = HEADER_BYTES + len(self.tables)
        if count is not None:
            self.fields[count] = len(rows)
        for row in rows:
            self.tables += struct.pack(f"<{len(row)}q", *row)

    def _records_and_kernels(self, names: Sequence[int]) -> None:
        """Add the tables that refer to code."""
        words, grids = len(self.bytecode.words), sum(len(kernel.entries) for kernel, _ in self.kernels)
        base = HEADER_BYTES + len(self.tables)
        text = base + 8 * (words + 5 * len(names) + grids)
        code = _aligned(text + len(self.text))

        def code_address(task: Task) -> int:
            kernel, grid = task
            return code + (self.runtime.entries["dlc_copy"] if kernel is None else self.entries[kernel, grid])

        self._table("records", "record_words", [(word,) for word in self.bytecode.relocate(base, code_address)])
        rows, entries = list[tuple[int, ...]](), list[tuple[int]]()
        for name, (kernel, grid_offsets) in zip(names, self.kernels, strict=True):
            rows.append((name, code + min(grid_offsets, default=0), kernel.size, len(entries), len(grid_offsets)))
            entries += [(code + entry,) for entry in grid_offsets]
        self._table("kernels", "kernel_count", rows)
        self._table("entries", "entry_count", entries)
        self.fields |= {"text": text, "code": code}

    def _written(self) -> bytes:
        code, entries = self.fields["code"], self.runtime.entries
        for field in ("call", "pool_bytes", "pool_init", "pool_worker", "pool_link", "pool_end", "crc32c"):
            self.fields[field] = code + entries[f"dlc_{field}"]
        self.fields["runtime_bytes"] = len(self.runtime.bytes)
        self.fields["code_bytes"] = len(self.code)
        self.fields |= {"bytes": code + len(self.code), "checksum": 0}
        head = entry_code(self.program.target.architecture, self.fields["call"]) + MAGIC
        body = bytes(self.tables + self.text)
        body += bytes(code - HEADER_BYTES - len(body)) + bytes(self.code)

        def image_bytes() -> bytes:
            return head + struct.pack(f"<{len(FIELDS)}q", *(self.fields[name] for name in FIELDS)) + body

        # The checksum is computed with 0 in its field.
        self.fields["checksum"] = zlib.crc32(image_bytes())
        return image_bytes()


def _aligned(base: int) -> int:
    return -(-base // CODE_ALIGNMENT) * CODE_ALIGNMENT


def _python_required_message(instruction: SetSize | PythonInstruction) -> str:
    """Return the error message of a call without Python that reaches an instruction for Python."""
    if isinstance(instruction, PythonCall) and instruction.op in _COLLECTIVES:
        return _FAILED_COLLECTIVE.format(label=instruction.settings["label"])
    if isinstance(instruction, PythonCall):
        return _NO_PYTHON_OPS.format(op=instruction.op, where=instruction.where)
    return _NO_PRINTING


def _element(info: TensorInfo) -> tuple[int, int]:
    """Return the ONNX code of a dtype (0 if it has none) and its item size."""
    name = info.dtype.name
    return _DTYPES.index(name) + 1 if name in _DTYPES else 0, info.dtype.itemsize
