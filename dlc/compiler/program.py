"""What there is to compile: a module at any stage, with its weights."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, cast

from numpy.typing import NDArray

from dlc.arrays import TensorInfo
from dlc.caching.model_cache import DUMPED, TFLITE
from dlc.dialects import host
from dlc.dialects.dl.base import element_type_of, shape_of, tensor_type
from dlc.dialects.dl.creation import WeightOp
from dlc.dialects.dl.dtypes import numpy_dtype
from dlc.dialects.dl.interfaces import DataDependent
from dlc.dialects.dl.programs.binding import bind_dims
from dlc.dialects.dl.programs.ranges import ranges_of, representative, state_ranges
from dlc.dialects.entry import entry_of, inputs_of, outputs_of, sizes_of
from dlc.dialects.registry import make_context
from dlc.dims import Dim, Size, bind_sizes, is_static, substitute
from dlc.errors import DlcError, ModelError, ShapeError, UnsupportedError
from dlc.forms import Border
from dlc.frontend.answers import Condition
from dlc.frontend.onnx import import_model
from dlc.frontend.onnx.graph import ModelFile, Source
from dlc.frontend.tflite import read_model
from dlc.given_shapes import GivenShapes, sizes_given, split_ranges
from dlc.instrument.dump import NEXT, WEIGHTS
from dlc.instrument.verify import verify
from dlc.ir import (
    ArrayAttr,
    Attribute,
    DictionaryAttr,
    Kept,
    MemRefType,
    ModuleOp,
    ParseError,
    SSAValue,
    StringAttr,
    VerifyException,
    contains,
    parse_module,
)
from dlc.runtime.program.host_program import weight_array
from dlc.stablehlo import is_stablehlo, read_module
from dlc.weights import WeightStore


@dataclass(frozen=True)
class Program:
    """A module at any stage, its weights, and the passes that are still to come if a dump says so.

    `inputs` and `outputs` are those of its entry. `files` are the files of external data that its model came with; `read_for`
    reads it again where it came from, for known shapes of its inputs. `defaults` are for inputs that a call may leave out.
    `border` is what users of the model give and get, where that is more than its tensors. `keeper` keeps a module
    that only those look at who have the program or one made of it. It is for open sizes that meet the `conditions`: whoever
    calls it sees to that.
    """

    module: ModuleOp
    weights: WeightStore
    name: str = "model"
    remaining: str | None = None
    files: tuple[Path, ...] = ()
    read_for: Callable[[Mapping[str, Sequence[int]]], Program] | None = None
    defaults: Mapping[str, NDArray[Any]] = field(default_factory=dict[str, NDArray[Any]])
    border: Border | None = None
    keeper: Kept | None = None
    conditions: tuple[Condition, ...] = ()

    @property
    def inputs(self) -> tuple[TensorInfo, ...]:
        main = entry_of(self.module)
        return _infos(list(map(_type, inputs_of(main))), main.arg_attrs, "input")

    @property
    def outputs(self) -> tuple[TensorInfo, ...]:
        main = entry_of(self.module)
        buffers = outputs_of(main)
        if not buffers:
            return _infos(main.function_type.outputs.data, main.res_attrs, "output")
        named = ArrayAttr(main.arg_attrs.data[-len(buffers) :]) if main.arg_attrs is not None else None
        return _infos(list(map(_type, buffers)), named, "output")

    @property
    def is_static(self) -> bool:
        """Whether every size is known before the program runs."""
        return not contains(entry_of(self.module), DataDependent) and all(is_static(info.shape) for info in self.inputs)

    @property
    def sizes(self) -> set[str]:
        """The symbolic sizes that the inputs bring."""
        return {name for info in self.inputs for size in info.shape for name in Dim.lift(size).symbols()}

    def kept(self) -> Program:
        """This program, whose module goes with the last one made of it."""
        return replace(self, keeper=Kept(self.module))

    def in_memory(self) -> Program:
        """This program with weights that hang on no file: what goes on being compiled when it is called."""
        return replace(self, weights=self.weights.in_memory())

    def with_sizes(self, sizes: Mapping[str, Size]) -> Program:
        """This program with symbolic sizes given, or by other names."""
        module = self.module.clone()
        bind_dims(module, sizes)
        return replace(self, module=module)

    def known(self, sizes: Mapping[str, int]) -> Program:
        """This program with all its symbolic sizes given; read anew where its types are none for these sizes, but those of what
        it came from are: a slice that they cut short, say.

        Raises ShapeError for sizes at which it is an error.
        """
        try:
            return self.with_sizes(sizes)
        except ShapeError as error:
            if self.read_for is None:
                raise
            try:
                return self.read_for({info.name: [int(substitute(s, sizes)) for s in info.shape] for info in self.inputs})
            except DlcError:
                raise error from None

    def for_inputs(self, arrays: Sequence[NDArray[Any]]) -> Program:
        """This program with the sizes that inputs of these shapes, which fit, give to its symbols."""
        sizes = self.sizes_of(arrays)
        return self.with_sizes(sizes) if sizes else self

    @property
    def planned_sizes(self) -> dict[str, int]:
        """A size for each symbol of the inputs: the one that plans are made for."""
        ranges = ranges_of(self.module)
        return {name: representative(Dim.symbol(name), ranges) for name in sorted(self.sizes)}

    def sizes_of(self, arrays: Sequence[NDArray[Any]]) -> dict[str, int]:
        """What inputs of these shapes, which fit, make of the program's symbols."""
        sizes: dict[str, int] = {}
        for info, array in zip(self.inputs, arrays, strict=True):
            bind_sizes(info.shape, array.shape, sizes)
        return sizes


def _infos(types: Sequence[Attribute], named: ArrayAttr[DictionaryAttr] | None, kind: str) -> tuple[TensorInfo, ...]:
    infos: list[TensorInfo] = []
    for k, t in enumerate(types):
        name = named.data[k].data.get("dl.name") if named is not None else None
        infos.append(_info(t, name.data if isinstance(name, StringAttr) else f"{kind}{k}"))
    return tuple(infos)


def _type(value: SSAValue) -> Attribute:
    """The type of an array of the entry: a buffer's as that of a tensor, with the sizes that it says."""
    if not isinstance(value.type, MemRefType):
        return value.type
    return tensor_type(sizes_of(value), cast("MemRefType[Attribute]", value.type).element_type)


def _info(type: Attribute, name: str) -> TensorInfo:
    return TensorInfo(name, shape_of(type), numpy_dtype(element_type_of(type)))


def imported_program(
    source: Source,
    name: str,
    input_shapes: GivenShapes,
    input_values: Mapping[str, NDArray[Any]] | None = None,
    *,
    extra_outputs: Sequence[str] = (),
    parameters: Sequence[str] = (),
) -> Program:
    """The program of an ONNX model; its `parameters` are inputs that a call may leave out. Raises what the importer raises."""
    shapes, ranges = split_ranges(input_shapes)
    imported = import_model(source, shapes, input_values=input_values, extra_outputs=extra_outputs, parameters=parameters)
    state_ranges(entry_of(imported.module), ranges)
    more: dict[str, Any] = {"files": imported.files, "defaults": imported.parameters, "border": imported.border}
    return Program(imported.module, imported.weights, name, **more)


def tflite_program(
    source: Path | bytes, input_shapes: GivenShapes, input_values: Mapping[str, NDArray[Any]] | None = None
) -> Program:
    """The program in a TFLite file, or in the bytes of one. Raises what its reader raises."""
    shapes, ranges = split_ranges(input_shapes)
    read = read_model(source, shapes, input_values)
    state_ranges(entry_of(read.module), ranges)
    return Program(read.module, read.weights, source.stem if isinstance(source, Path) else "model")


def load_program(
    source: Path | bytes | ModelFile,
    input_shapes: GivenShapes | None = None,
    input_values: Mapping[str, NDArray[Any]] | None = None,
) -> Program:
    """The program in an ONNX file, in a TFLite file or its bytes, in StableHLO, or in a dumped module with its weights beside
    it; or of a model that was read.

    Raises ModelError for a file that is neither or whose weights are not there, and what the importer raises.
    """
    if isinstance(source, Path) and source.suffix == ".dlc":
        raise ModelError(f"{source}: compiled already; `dlc run`, `dlc bench` and `dlc.load` take it, all else the ONNX model")
    if isinstance(source, Path) and source.suffix == DUMPED:
        return _dumped_program(source, input_shapes, input_values)

    def read_for(known: Mapping[str, Sequence[int]]) -> Program:
        # The tensors of a list have their shapes from it.
        own = {name: shape for name, shape in known.items() if name not in parts}
        return load_program(source, {**(input_shapes or {}), **own}, input_values)

    parts: set[str] = set()
    if isinstance(source, bytes) or (isinstance(source, Path) and source.suffix == TFLITE):
        return replace(tflite_program(source, input_shapes or {}, input_values), read_for=read_for)
    program = imported_program(source, source.stem, input_shapes or {}, input_values)
    if program.border is not None:
        parts = {info.name for info in program.inputs} - {info.name for info in program.border.inputs}
    return replace(program, read_for=read_for)


def _dumped_program(
    path: Path,
    input_shapes: GivenShapes | None,
    input_values: Mapping[str, NDArray[Any]] | None,
) -> Program:
    if input_values:
        raise ShapeError(f"{path}: a module has its constants; give them when the model is exported or imported")
    try:
        text = path.read_text("utf-8")
        if is_stablehlo(text):
            read = read_module(text, path.name)
            return _with_shapes(Program(read.module, read.weights, path.stem), path, input_shapes)
        module = parse_module(make_context(), text, str(path))
        verify(module)
        entry_of(module)
    except (ParseError, VerifyException, UnicodeDecodeError) as error:
        raise ModelError(f"{path}: not valid IR: {str(error).strip()}") from error
    except UnsupportedError as error:
        raise ModelError(f"{path}: {error}") from error
    remaining = module.attributes.pop(NEXT, None)
    weights = path.parent / WEIGHTS
    store = WeightStore.load(weights) if weights.is_dir() else WeightStore()
    try:
        for op in module.walk():
            if isinstance(op, WeightOp | host.WeightOp):
                weight_array(_info(_type(op.result), op.symbol.string_value()), store)
    except ModelError as error:
        raise ModelError(f"{path}: {error}") from error
    program = Program(module, store, path.stem, remaining.data if isinstance(remaining, StringAttr) else None)
    return _with_shapes(program, path, input_shapes)


def _with_shapes(program: Program, path: Path, shapes: GivenShapes | None) -> Program:
    """The program of a file for the sizes that shapes give to what its inputs leave open."""
    try:
        sizes = sizes_given(program.inputs, shapes or {})
    except ShapeError as error:
        raise ShapeError(f"{path}: a module has its shapes: {error}") from None
    return program.with_sizes(sizes) if sizes else program
