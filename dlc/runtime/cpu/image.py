"""A compiled program as one block of bytes that runs without Python, wherever it lies and from read-only memory.

    code that calls it · "dlcimage" · header · tables · text · code of the run-time and of the kernels

It is a section of a compiled model's file, with the kernels' code of which it is the only copy; and with the weights behind it,
all of a library (`dlc.deploy`). Fields of the header and tables are i64; what says where something is counts in bytes from the
block's beginning; arrays lie so far from there, forward or back. What each means is said in call.ll, which calls a program,
and in dlc.h, which opens one: both have these fields in this order.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

from dlc.arrays import ALIGNMENT, TensorInfo
from dlc.runtime.cpu.code.entry import ENTRY_BYTES, entry_code
from dlc.runtime.cpu.code.loader import CODE_ALIGNMENT, Code, linked
from dlc.runtime.cpu.kernel_object import KernelObject
from dlc.runtime.cpu.sizing import Sizing
from dlc.runtime.cpu.table import Table, Task, assemble
from dlc.runtime.program.host_program import Compute, Decide, Fail, Hosted, HostProgram
from dlc.runtime.program.open_program import OpenProgram, resolved
from dlc.runtime.saving.container import VERSION, Placed
from dlc.target import Target, architecture_of, flags_of

MAGIC = b"dlcimage"
FIELDS = (
    *("version", "machine", "bytes", "checksum", "name", "features", "code"),  # of interest to who opens it
    *("slots", "arena", "inputs", "outputs", "tensors", "dims", "dim_count", "operations", "operation_count"),
    *("arrays", "weight_count", "fills", "fill_count", "records", "symbol_count", "decisions", "decision_count"),
    *("record_words", "array_count", "symbols", "failures", "failure_count", "places", "place_count", "text"),
    *("kernels", "kernel_count", "entries", "entry_count", "code_bytes"),
    *("runtime_bytes", "call", "pool_bytes", "pool_init", "pool_worker", "pool_end", "checksum_of"),
)
HEADER_BYTES = ENTRY_BYTES + len(MAGIC) + 8 * len(FIELDS)
# As ONNX's TensorProto.DataType numbers them, from 1 on; 8 are strings.
_DTYPES = (
    *("float32", "uint8", "int8", "uint16", "int16", "int32", "int64", "", "bool", "float16", "float64", "uint32", "uint64"),
    *("complex64", "complex128", "bfloat16", "float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz"),
    *("uint4", "int4", "float4_e2m1fn", "float8_e8m0fnu", "uint2", "int2"),
)
# What an output is `over` that lies in the call's memory.
_KEPT = -2
# What a call ends with where there is no Python.
_NO_PRINTING = "the program has a dlc.debug.print, which only Python prints; take it out"
_NO_COMPUTING = "the program has a {op} ({where}), which only Python computes"


@dataclass(frozen=True)
class Image:
    """A program that is to be a block: what it runs, and the code that it runs."""

    name: str
    target: Target
    host: HostProgram | OpenProgram
    kernels: Sequence[KernelObject]
    runtime: bytes

    def written(self, weights: Sequence[Placed], defaults: Mapping[str, Placed]) -> bytes:
        """The block, with its `weights`, in order, and `defaults` of inputs."""
        return _Writer(self, weights, defaults).block()


def kernels_of(image: memoryview, target: Target) -> tuple[bytes, dict[str, tuple[tuple[int, ...], int]]]:
    """The code of a block's kernels, and for each of them by name, where its grids begin in it, and how many bytes it is.

    Raises ValueError or IndexError for a block that is none, or whose code is not of the target's architecture.
    """
    fields = _fields_of(image)
    if fields["machine"] != architecture_of(target).machine:
        raise ValueError(f"code for machine {fields['machine']} in a program for {target.architecture}")

    def rows(where: str, count: str, width: int) -> list[tuple[int, ...]]:
        start, end = fields[where], fields[where] + 8 * width * fields[count]
        if not 0 <= start <= end <= len(image):
            raise ValueError(f"{where} outside of the block")
        return list(struct.iter_unpack(f"<{width}q", image[start:end]))

    text = bytes(image[fields["text"] : fields["code"]])
    begin, end = fields["code"] + _aligned(fields["runtime_bytes"]), fields["code"] + fields["code_bytes"]
    code = bytes(image[begin:end])
    entries = [at - begin for (at,) in rows("entries", "entry_count", 1)]
    if end > len(image) or not all(0 <= at < len(code) for at in entries):
        raise ValueError("a kernel outside of the block")
    return code, {
        text[name : text.index(b"\0", name)].decode(): (tuple(entries[first : first + count]), size)
        for name, _, size, first, count in rows("kernels", "kernel_count", 5)
    }


def memory_of(image: bytes) -> int:
    """How many bytes of memory a call takes of a program without open sizes."""
    fields = _fields_of(memoryview(image))
    kind, arena, _ = struct.unpack_from("<3q", image, fields["operations"] + 24 * fields["arena"])
    assert kind == 0, "a constant"
    return -(-8 * fields["slots"] // ALIGNMENT) * ALIGNMENT + arena


def function_in(image: bytes, runtime: bytes, name: str) -> int:
    """Where in a block a function of its run-time begins."""
    return _fields_of(memoryview(image))["code"] + linked_runtime(runtime).entries[name]


def _fields_of(image: memoryview) -> dict[str, int]:
    if len(image) < HEADER_BYTES or bytes(image[ENTRY_BYTES : ENTRY_BYTES + len(MAGIC)]) != MAGIC:
        raise ValueError("no block of a program")
    values = struct.unpack_from(f"<{len(FIELDS)}q", image, HEADER_BYTES - 8 * len(FIELDS))
    return dict(zip(FIELDS, values, strict=True))


@lru_cache
def linked_runtime(object: bytes) -> Code:
    """The run-time's code."""
    return linked(object)


class _Writer:
    def __init__(self, program: Image, weights: Sequence[Placed], defaults: Mapping[str, Placed]) -> None:
        self.program, self.host = program, program.host
        self.weights, self.defaults = weights, defaults
        self.table = self._assembled(program.kernels)
        self.sizing = Sizing(self.host, self.instructions, self.table)
        self.sizes = self.sizing.code
        self.fields: dict[str, int] = {}
        self.tables = bytearray()
        self.text = bytearray()
        self.runtime = linked_runtime(program.runtime)
        self.code = bytearray(self.runtime.bytes)
        places = {code: self._placed(code) for code in dict.fromkeys(kernel.code for kernel in program.kernels)}
        self.kernels = [(k, [places[k.code] + at for at in k.entries]) for k in program.kernels]
        self.entries = {(k.name, grid): at for k, entries in self.kernels for grid, at in enumerate(entries)}

    def _assembled(self, kernels: Sequence[KernelObject]) -> Table:
        instructions = self.host.instructions
        if isinstance(self.host, OpenProgram):
            instructions = resolved(instructions, {k.name: k.open for k in kernels if k.open is not None})
        self.instructions = instructions
        return assemble(instructions, self.host.slots, {k.name: k.tasks for k in kernels})

    def _placed(self, code: bytes) -> int:
        """Where in all code that of some kernels is."""
        at = _aligned(len(self.code))
        self.code += bytes(at - len(self.code)) + code
        return at

    def block(self) -> bytes:
        tensors, dims = self._tensors()
        fills, self.fields["arena"] = self.sizing.regions(self.sizing.by_data())
        fills += self.sizing.numbers()
        self.sizing.demand()
        failures, places = self._failures()
        symbols = [(self._text(symbol), *self.sizing.bounds(symbol)) for symbol in self.sizing.given]
        self.fields |= {"slots": self.table.slots, "version": VERSION, "name": self._text(self.program.name)}
        self.fields["machine"] = architecture_of(self.program.target).machine
        self.fields |= {"features": self._text(" ".join(flags_of(self.program.target)))}
        self._table("dims", "dim_count", [(dim,) for dim in dims])
        self._table("operations", "operation_count", self.sizes.operations)
        self._table("arrays", "array_count", [*self.weights, *self.defaults.values()])
        self.fields["weight_count"] = len(self.weights)
        self._table("fills", "fill_count", fills)
        decisions = [(d.code, d.slot, d.offset, d.on) for d in self.sizing.decisions()]
        self._table("decisions", "decision_count", decisions)
        self._table("symbols", "symbol_count", symbols)
        self._table("failures", "failure_count", failures)
        self._table("places", "place_count", places)
        self._table("tensors", None, tensors)
        names = [self._text(kernel.name) for kernel, _ in self.kernels]
        self._records_and_kernels(names)
        return self._written()

    def _tensors(self) -> tuple[list[tuple[int, ...]], list[int]]:
        """Inputs and outputs, and the numbers that their sizes are."""
        donors: Mapping[int, int] = self.host.donors if isinstance(self.host, HostProgram) else {}
        rows, dims = list[tuple[int, ...]](), list[int]()
        infos = [(i, self.defaults[i.name].distance if i.name in self.defaults else 0, -1) for i in self.host.inputs]
        kept = dict.fromkeys((k for _, k in self.sizing.by_data()), _KEPT)
        infos += [(info, 0, {**donors, **kept}.get(k, -1)) for k, info in enumerate(self.host.outputs)]
        for info, otherwise, over in infos:
            rows.append((self._text(info.name), *_element(info), len(info.shape), len(dims), otherwise, over))
            dims += map(self.sizes.number, info.shape)
        self.fields |= {"inputs": len(self.host.inputs), "outputs": len(self.host.outputs)}
        return rows, dims

    def _failures(self) -> tuple[list[tuple[int, int, int]], list[tuple[int, int]]]:
        """Messages, and the places of the numbers in them."""
        rows, places = list[tuple[int, int, int]](), list[tuple[int, int]]()
        for stop, _ in self.table.stops:
            message, numbers = (stop.message, stop.numbers) if isinstance(stop, Fail) else (_without_python(stop), ())
            rows.append((self._text(message), len(places), len(numbers)))
            places += numbers
        return rows, places

    def _text(self, text: str) -> int:
        at = len(self.text)
        self.text += text.replace("\0", "").encode(errors="replace") + b"\0"
        return at

    def _table(self, where: str, count: str | None, rows: Sequence[Sequence[int]]) -> None:
        self.fields[where] = HEADER_BYTES + len(self.tables)
        if count is not None:
            self.fields[count] = len(rows)
        for row in rows:
            self.tables += struct.pack(f"<{len(row)}q", *row)

    def _records_and_kernels(self, names: Sequence[int]) -> None:
        """What says where code is."""
        words, grids = len(self.table.words), sum(len(kernel.entries) for kernel, _ in self.kernels)
        place = HEADER_BYTES + len(self.tables)
        text = place + 8 * (words + 5 * len(names) + grids)
        code = _aligned(text + len(self.text))

        def at(task: Task) -> int:
            kernel, grid = task
            return code + (self.runtime.entries["dlc_copy"] if kernel is None else self.entries[kernel, grid])

        self._table("records", "record_words", [(word,) for word in self.table.placed(place, at)])
        rows, entries = list[tuple[int, ...]](), list[tuple[int]]()
        for name, (kernel, own) in zip(names, self.kernels, strict=True):
            rows.append((name, code + min(own, default=0), kernel.size, len(entries), len(own)))
            entries += [(code + entry,) for entry in own]
        self._table("kernels", "kernel_count", rows)
        self._table("entries", "entry_count", entries)
        self.fields |= {"text": text, "code": code}

    def _written(self) -> bytes:
        code, entries = self.fields["code"], self.runtime.entries
        for field in ("call", "pool_bytes", "pool_init", "pool_worker", "pool_end"):
            self.fields[field] = code + entries[f"dlc_{field}"]
        self.fields |= {"checksum_of": code + entries["dlc_crc32c"], "runtime_bytes": len(self.runtime.bytes)}
        self.fields["code_bytes"] = len(self.code)
        self.fields |= {"bytes": code + len(self.code), "checksum": 0}
        head = entry_code(self.program.target.architecture, self.fields["call"]) + MAGIC
        body = bytes(self.tables + self.text)
        body += bytes(code - HEADER_BYTES - len(body)) + bytes(self.code)

        def whole() -> bytes:
            return head + struct.pack(f"<{len(FIELDS)}q", *(self.fields[name] for name in FIELDS)) + body

        # Of the block with 0 in its place.
        self.fields["checksum"] = zlib.crc32(whole())
        return whole()


def _aligned(place: int) -> int:
    return -(-place // CODE_ALIGNMENT) * CODE_ALIGNMENT


def _without_python(stop: Decide | Hosted) -> str:
    """What a call ends with that comes to what only Python does."""
    return _NO_COMPUTING.format(op=stop.op, where=stop.where) if isinstance(stop, Compute) else _NO_PRINTING


def _element(info: TensorInfo) -> tuple[int, int]:
    """The dtype's number, 0 if it has none, and its size."""
    name = info.dtype.name
    return _DTYPES.index(name) + 1 if name in _DTYPES else 0, info.dtype.itemsize
