"""Programs: a module at any stage with its weights, and the functions that load one from a model file."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, cast

from numpy.typing import NDArray

from dlc.arrays import TensorInfo
from dlc.caching.model_cache import MLIR_SUFFIX, TFLITE_SUFFIX
from dlc.dialects import host
from dlc.dialects.dl.base import element_type_of, shape_of, tensor_type
from dlc.dialects.dl.creation import WeightOp
from dlc.dialects.dl.data_dependent.selection import SelectionOp
from dlc.dialects.dl.dtypes import numpy_dtype
from dlc.dialects.dl.interfaces import DataDependent
from dlc.dialects.dl.programs.binding import bind_dims
from dlc.dialects.dl.programs.size_ranges import guards_of, representative, set_guards, set_size_ranges, size_ranges
from dlc.dialects.entry import entry_of, inputs_of, outputs_of, sizes_of
from dlc.dialects.registry import make_context
from dlc.errors import DlcError, ModelError, ShapeError, UnsupportedError
from dlc.frontend.onnx import import_model
from dlc.frontend.onnx.graph import ModelFile, ModelSource
from dlc.frontend.size_guards import SizeGuards, deciding_sizes, specializing_data_dependent_sizes
from dlc.frontend.tflite import read_model
from dlc.instrument.dump import NEXT, WEIGHTS
from dlc.instrument.verify import verify
from dlc.ir import (
    ArrayAttr,
    Attribute,
    DictionaryAttr,
    MemRefType,
    ModuleOp,
    OpOwner,
    ParseError,
    SSAValue,
    StringAttr,
    VerifyException,
    contains,
    parse_module,
    walk_ops,
)
from dlc.runtime.program.host_program import weight_array
from dlc.shapes.dims import Dim, Size, UndecidableError, is_static, substitute
from dlc.shapes.input_sizes import require_matching_inputs
from dlc.shapes.ranges import SizeRange
from dlc.shapes.shape_specs import ShapeSpecs, TensorShape, bind_symbolic_sizes, split_ranges
from dlc.stablehlo import is_stablehlo, read_module
from dlc.value_types import IOSignature
from dlc.weights import WeightStore


@dataclass(frozen=True)
class Program:
    """A module at any stage, its weights, and its remaining passes if it was dumped.

    Attributes:
        remaining_passes: The passes that have not run yet on a dumped module.
        files: The files of external data that were read with the model.
        reimport: Imports the model again for other shapes of some inputs.
        defaults: Values of inputs that a call may omit.
        io_signature: The value types of the model's inputs and outputs, if not all of them are tensors.
        mutations: The outputs that are new values of inputs, by the name of the output, and these inputs.
        module_owner: Keeps the module alive as long as this program or one derived from it is in use.
    """

    module: ModuleOp
    weights: WeightStore
    name: str = "model"
    remaining_passes: str | None = None
    files: tuple[Path, ...] = ()
    reimport: Callable[[Mapping[str, TensorShape]], Program] | None = None
    defaults: Mapping[str, NDArray[Any]] = field(default_factory=dict[str, NDArray[Any]])
    io_signature: IOSignature | None = None
    mutations: Mapping[str, str] = field(default_factory=dict[str, str])
    module_owner: OpOwner | None = None

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
        """Return whether all sizes are determined before the program runs."""
        return not contains(entry_of(self.module), DataDependent) and all(is_static(info.shape) for info in self.inputs)

    @property
    def sizes(self) -> set[str]:
        """The symbols in the shapes of the inputs."""
        return {name for info in self.inputs for size in info.shape for name in Dim.lift(size).symbols()}

    @property
    def data_dependent_sizes(self) -> dict[str, Size | None]:
        """The symbols of data-dependent sizes in program order, with their upper bounds if known."""
        upper_bounds: dict[str, Size | None] = {}
        for op in walk_ops(entry_of(self.module), DataDependent):
            max_size = op.max_size if isinstance(op, SelectionOp) else None
            upper_bounds |= {str(size): max_size for size in op.data_dependent_sizes if isinstance(size, Dim)}
        return upper_bounds

    def owning_module(self) -> Program:
        """Return this program as the owner of its module: the module is released with the last program derived from it."""
        return replace(self, module_owner=OpOwner(self.module))

    def copy_to_memory(self) -> Program:
        """Return this program with weights that do not depend on a file, for compilations at run time."""
        return replace(self, weights=self.weights.copy_to_memory())

    def with_sizes(self, sizes: Mapping[str, Size], *, keeps_types: bool = False) -> Program:
        """Return this program with symbols replaced by sizes or by other symbols; see `bind_dims`."""
        module = self.module.clone()
        bind_dims(module, sizes, keeps_types=keeps_types)
        return replace(self, module=module)

    def reimport_for(self, sizes: Mapping[str, int]) -> Program | None:
        """Import the model again for symbolic sizes, deciding their comparisons by `sizes`: the outcomes are its guards.

        Return None if the symbolic types hold for these sizes, so that another import has the same types, or if the model
        cannot be imported again.
        """
        if self.reimport is None:
            return None
        with suppress(ShapeError, UndecidableError):
            self.with_sizes(sizes, keeps_types=True)
            return None
        return import_for(sizes, partial(self.reimport, {}), size_ranges(self.module))

    def specialize(self, sizes: Mapping[str, int]) -> Program:
        """Return this program with all its symbols replaced by sizes.

        If the symbolic types do not hold for these sizes (if a slice is clamped, for example), the model is imported again.

        Raises ShapeError for sizes that are invalid in the model.
        """
        try:
            return self.with_sizes(sizes, keeps_types=self.reimport is not None)
        except (ShapeError, UndecidableError) as error:
            if self.reimport is None:
                raise
            try:
                return self._reimport(self.reimport, sizes)
            except DlcError:
                raise error from None

    def _reimport(self, reimport: Callable[[Mapping[str, TensorShape]], Program], sizes: Mapping[str, int]) -> Program:
        """Import the model again for these sizes of input symbols, or of data-dependent symbols if it has no others."""
        shapes = {info.name: [substitute(s, sizes) for s in info.shape] for info in self.inputs}
        specs = {name: [s if isinstance(s, int) else str(s) for s in shape] for name, shape in shapes.items()}
        program = reimport(specs)
        # A program that was imported for symbolic input shapes may have other data-dependent sizes of the same names.
        if [*program.data_dependent_sizes] != [*self.data_dependent_sizes]:
            return program
        data_dependent_sizes = {symbol: sizes[symbol] for symbol in self.data_dependent_sizes if symbol in sizes}

        def reimport_for_data(shapes: Mapping[str, TensorShape]) -> Program:
            with specializing_data_dependent_sizes(data_dependent_sizes):
                return reimport(shapes)

        return replace(reimport_for_data(specs), reimport=reimport_for_data) if data_dependent_sizes else program

    def for_inputs(self, arrays: Sequence[NDArray[Any]]) -> Program:
        """Return this program with its symbols bound to the shapes of inputs. Raises what `sizes_of` raises."""
        sizes = self.sizes_of(arrays)
        return self.with_sizes(sizes) if sizes else self

    @property
    def representative_sizes(self) -> dict[str, int]:
        """A representative size for each symbol of the inputs; tile plans are optimized for these sizes."""
        ranges = size_ranges(self.module)
        return {name: representative(Dim.symbol(name), ranges) for name in sorted(self.sizes)}

    def sizes_of(self, arrays: Sequence[NDArray[Any]]) -> dict[str, int]:
        """Return the values of the program's symbols for these inputs. Raises ShapeError or DTypeError if they do not match."""
        return require_matching_inputs(self.name, self.inputs, arrays)


def _infos(types: Sequence[Attribute], named: ArrayAttr[DictionaryAttr] | None, kind: str) -> tuple[TensorInfo, ...]:
    infos: list[TensorInfo] = []
    for k, t in enumerate(types):
        name = named.data[k].data.get("dl.name") if named is not None else None
        infos.append(_info(t, name.data if isinstance(name, StringAttr) else f"{kind}{k}"))
    return tuple(infos)


def _type(value: SSAValue) -> Attribute:
    """Return the tensor type of an argument or result of the entry; a buffer's type gets its symbolic sizes."""
    if not isinstance(value.type, MemRefType):
        return value.type
    return tensor_type(sizes_of(value), cast("MemRefType[Attribute]", value.type).element_type)


def _info(type: Attribute, name: str) -> TensorInfo:
    return TensorInfo(name, shape_of(type), numpy_dtype(element_type_of(type)))


def import_for(sizes: Mapping[str, int], read: Callable[[], Program], ranges: Mapping[str, SizeRange] | None = None) -> Program:
    """Import a program with `read`, deciding comparisons of symbolic sizes by `sizes`; their outcomes become guards."""
    decisions = SizeGuards(ranges or {}, sizes)
    with deciding_sizes(decisions):
        program = read()
    main = entry_of(program.module)
    set_guards(main, (*decisions.guards, *guards_of(main)))
    return program


def imported_program(
    source: ModelSource,
    name: str,
    input_shapes: ShapeSpecs,
    input_values: Mapping[str, NDArray[Any]] | None = None,
    *,
    extra_outputs: Sequence[str] = (),
    parameters: Sequence[str] = (),
) -> Program:
    """Import an ONNX model; its `parameters` become inputs that a call may omit. Raises what the importer raises."""
    shapes, ranges = split_ranges(input_shapes)
    imported = import_model(source, shapes, input_values=input_values, extra_outputs=extra_outputs, parameters=parameters)
    set_size_ranges(entry_of(imported.module), ranges)
    optional_fields: dict[str, Any] = {
        "files": imported.files,
        "defaults": imported.parameters,
        "io_signature": imported.io_signature,
    }
    return Program(imported.module, imported.weights, name, **optional_fields)


def tflite_program(
    source: Path | bytes, input_shapes: ShapeSpecs, input_values: Mapping[str, NDArray[Any]] | None = None
) -> Program:
    """Import a TFLite file, or the bytes of one. Raises what its reader raises."""
    shapes, ranges = split_ranges(input_shapes)
    model = read_model(source, shapes, input_values)
    set_size_ranges(entry_of(model.module), ranges)
    return Program(model.module, model.weights, source.stem if isinstance(source, Path) else "model")


def load_program(
    source: Path | bytes | ModelFile,
    input_shapes: ShapeSpecs | None = None,
    input_values: Mapping[str, NDArray[Any]] | None = None,
) -> Program:
    """Load the program of an ONNX file, a TFLite file or its bytes, a StableHLO file, a dumped module, or an ONNX model in
    memory.

    The weights of a dumped module are next to it. Raises ModelError for an invalid file or missing weights, and what the
    importers raise.
    """
    if isinstance(source, Path) and source.suffix == ".dlc":
        raise ModelError(
            f"{source}: already compiled; run it with `dlc run`, `dlc bench` or `dlc.load`, or pass the ONNX model"
        )
    if isinstance(source, Path) and source.suffix == MLIR_SUFFIX:
        return _dumped_program(source, input_shapes, input_values)

    def reimport(shapes: Mapping[str, TensorShape]) -> Program:
        # The shapes of the tensors of a list are derived from the list.
        tensor_shapes = {name: shape for name, shape in shapes.items() if name not in element_names}
        return load_program(source, {**(input_shapes or {}), **tensor_shapes}, input_values)

    element_names: set[str] = set()
    if isinstance(source, bytes) or (isinstance(source, Path) and source.suffix == TFLITE_SUFFIX):
        return replace(tflite_program(source, input_shapes or {}, input_values), reimport=reimport)
    program = imported_program(source, source.stem, input_shapes or {}, input_values)
    if program.io_signature is not None:
        element_names = {info.name for info in program.inputs} - {info.name for info in program.io_signature.inputs}
    return replace(program, reimport=reimport)


def _dumped_program(
    path: Path,
    input_shapes: ShapeSpecs | None,
    input_values: Mapping[str, NDArray[Any]] | None,
) -> Program:
    if input_values:
        raise ShapeError(f"{path}: a dumped module has its constants; set values when the model is exported or imported")
    try:
        text = path.read_text("utf-8")
    except UnicodeDecodeError as error:
        raise ModelError(f"{path} is not valid IR: it is a binary file") from error
    if is_stablehlo(text):
        model = read_module(text, str(path))
        return _with_shapes(Program(model.module, model.weights, path.stem), path, input_shapes)
    try:
        module = parse_module(make_context(), text, str(path))
        verify(module)
        entry_of(module)
    except (ParseError, VerifyException) as error:
        raise ModelError(f"{path} is not valid IR: {str(error).strip()}") from error
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


def _with_shapes(program: Program, path: Path, shapes: ShapeSpecs | None) -> Program:
    """Return the program of a file with the symbolic dimensions of its inputs bound to shapes."""
    try:
        sizes = bind_symbolic_sizes(program.inputs, shapes or {})
    except ShapeError as error:
        raise ShapeError(f"{path}: {error}") from None
    return program.with_sizes(sizes) if sizes else program
