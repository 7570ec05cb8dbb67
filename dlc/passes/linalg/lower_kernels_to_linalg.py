"""`lower-kernels-to-linalg`: lowers each kernel of `dl` ops to structured ops on tensors."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from dlc.dialects.dl.base import DlOp, element_type_of, has_symbolic_dims, ints, rank_of, shape_of, sizes, tensor_type
from dlc.dialects.dl.creation import ConstantOp
from dlc.dialects.dl.dtypes import storage_value
from dlc.dialects.dl.interfaces import (
    Composite,
    Contraction,
    DataMovement,
    Elementwise,
    GatherLike,
    Reduction,
    ScatterLike,
    Window,
    storage_type,
)
from dlc.dialects.dl.movement.padding import PadOp
from dlc.dialects.dl.movement.shaping import ConcatOp, ReshapeOp, ReverseOp, SliceOp, result_iterators, static_sizes
from dlc.dialects.dl.programs.program import KernelOp, output_aliases
from dlc.errors import UnsupportedError
from dlc.ir import (
    AffineDimExpr,
    AffineExpr,
    AffineMap,
    Attribute,
    Block,
    Context,
    FunctionType,
    ModuleOp,
    ModulePass,
    Region,
    SSAValue,
    StringAttr,
    erase_op,
    func,
    index,
)
from dlc.passes.dl.rewriting import rewrite_forward, splat
from dlc.passes.linalg import lowerings
from dlc.passes.linalg.buffer_functions import copy_kernel_attributes, result_name
from dlc.passes.linalg.destinations import Destination, DestinationTensor, padding_windows
from dlc.passes.linalg.library_kernels import lower_library_kernel, match_library_kernel
from dlc.passes.linalg.linalg_builder import LinalgBuilder, shape
from dlc.passes.linalg.source_reads import SourceRead, reshape_map
from dlc.passes.structured import ConstantPool, OpBuilder
from dlc.shapes.dims import Size, is_static
from dlc.shapes.reshapes import paired_reshape_groups

# Ops that compute their result, and can do so in a given destination.
_COMPUTED_OPS = (Elementwise, Reduction, Contraction, Window, GatherLike, ScatterLike)


@dataclass(frozen=True)
class LowerKernelsToLinalgPass(ModulePass):
    """Replaces each `dl.kernel` by a function of structured ops in the module `@kernels`, in destination-passing style.

        dl.kernel @k(%x: tensor<58x64xf32>, %w: tensor<64x8xf32>) -> (tensor<58x8xf32>) {
          %c = dl.matmul %x, %w
          %r = dl.relu %c
          dl.yield %r }
      →
        builtin.module @kernels {
          func.func @k(%x: tensor<58x64xf32>, %w: tensor<64x8xf32>, %out: tensor<58x8xf32>) -> tensor<58x8xf32>
              attributes {kernel} {
            %z = linalg.fill ins(%zero) outs(tensor.empty)
            %c = linalg.generic … ins(%x, %w) outs(%z) { mulf; addf }
            %r = linalg.generic … ins(%c) outs(%out) { maximumf }
            func.return %r } }

    Transposes, broadcasts, slices and unpacked weights become the indexing maps of their users. Operands of a pad or a
    concatenation are computed in their window of the result. Runtime sizes of a dispatch are the last arguments, of type
    `index`. A library kernel is emitted directly as loops on buffers, since later stages do not transform it. Requires
    kernels without weights.
    """

    name = "lower-kernels-to-linalg"

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        kernels = [k for k in op.ops if isinstance(k, KernelOp)]
        functions = [_lower(k) for k in kernels]
        for kernel in kernels:
            erase_op(kernel)
        op.body.block.add_op(ModuleOp(functions, sym_name=StringAttr("kernels")))


def _lower(kernel: KernelOp) -> func.FuncOp:
    library_kernel = match_library_kernel(kernel)
    return _KernelLowering(kernel).run() if library_kernel is None else lower_library_kernel(kernel, library_kernel)


def _decompose(op: DlOp) -> Sequence[SSAValue] | None:
    return op.decompose(*op.operands) if isinstance(op, Composite) else None


class _KernelLowering:
    def __init__(self, kernel: KernelOp) -> None:
        rewrite_forward(kernel.body.block, _decompose)
        self.kernel = kernel
        inputs = [_storage(t) for t in kernel.function_type.inputs.data]
        outputs = [_storage(t) for t in kernel.function_type.outputs.data]
        body = Block(arg_types=[*inputs, *outputs, *(index for _ in kernel.representative)])
        self.function = func.FuncOp(kernel.symbol, FunctionType.from_lists(body.arg_types, outputs), Region(body))
        copy_kernel_attributes(self.function, kernel)
        self.builder = LinalgBuilder(OpBuilder(ConstantPool(self.function), body))
        self.reads: dict[SSAValue, SourceRead] = {}
        for parameter, argument in zip(kernel.body.block.args, body.args, strict=False):
            argument.name_hint = parameter.name_hint
            self.reads[parameter] = SourceRead.of(argument)
        self.outputs: list[DestinationTensor] = []
        for i, argument in enumerate(body.args[len(inputs) : len(inputs) + len(outputs)]):
            argument.name_hint = result_name(i, len(outputs))
            self.outputs.append(DestinationTensor(*_shape_and_element(argument), argument))
        self.destinations: dict[SSAValue, Destination] = {}
        # Results that are written over an argument, in place.
        self.in_place = {kernel.yielded[result] for result in output_aliases(kernel)}

    def run(self) -> func.FuncOp:
        self.choose_destinations()
        for op in self.kernel.body.block.ops:
            if isinstance(op, DlOp):
                self.builder.set_location(op.location)
                self.lower(op)
        self.builder.set_location(self.kernel.location)
        for value, root in zip(self.kernel.yielded, self.outputs, strict=True):
            if not root.is_written:
                read = self.read(value)
                Destination.full(root).write(self.builder, lambda output, read=read: lowerings.copy(self.builder, read, output))
        self.builder.ops.insert(func.ReturnOp(*(root.value(self.builder) for root in self.outputs)))
        return self.function

    # Destinations of results

    def choose_destinations(self) -> None:
        """Assign results to outputs, and operands of pads and concatenations to their windows."""
        for value, root in zip(self.kernel.yielded, self.outputs, strict=True):
            self.assign_destination(value, Destination.full(root))
        for op in reversed(list(self.kernel.body.block.ops)):
            if not isinstance(op, PadOp | ConcatOp) or not _is_assembled(op):
                continue
            result_shape = shape_of(op.result)
            element = storage_type(element_type_of(op.result))
            destination = self.destinations.setdefault(op.result, Destination.full(DestinationTensor(result_shape, element)))
            for value, offsets in _assembled_operands(op):
                if len(list(value.uses)) == 1:
                    self.assign_destination(value, destination.window(offsets, shape_of(value)))

    def assign_destination(self, value: SSAValue, destination: Destination) -> None:
        if isinstance(value.owner, _COMPUTED_OPS):
            self.destinations.setdefault(value, destination)

    def store(self, value: SSAValue) -> lowerings.Store:
        """Return the function that stores a result in its destination."""

        def write_result(compute: Callable[[SSAValue], SSAValue]) -> SSAValue:
            destination = self.destinations.get(value)
            if destination is None:
                return compute(self.builder.empty(*_shape_and_element(value)))
            return destination.write(self.builder, compute)

        return write_result

    # Reads of operands

    def read(self, value: SSAValue) -> SourceRead:
        return self.reads[value]

    def materialize(self, value: SSAValue) -> SSAValue:
        """Return a tensor that holds the value itself."""
        read = self.read(value)
        if not read.is_tensor:
            self.reads[value] = read = SourceRead.of(
                lowerings.copy(self.builder, read, self.builder.empty(*_shape_and_element(value)))
            )
        return read.source

    def view(self, value: SSAValue, to: Sequence[Size]) -> SourceRead:
        """Return a read of the value's elements, in row-major order, as another shape."""
        sizes, read = shape_of(value), self.read(value)
        if sizes == tuple(to):
            return read
        if read.is_scalar:
            return SourceRead(read.source, AffineMap(len(to), 0, ()))
        unit_axes_map = reshape_map(sizes, to, units_only=True)
        split_map = reshape_map(sizes, to, units_only=False)
        if unit_axes_map is not None:
            return read.through(unit_axes_map)
        if split_map is not None and not read.is_tensor:
            return read.through(split_map)
        return SourceRead.of(self.builder.reshape(self.materialize(value), to, paired_reshape_groups(sizes, to)))

    # Ops

    def lower(self, op: DlOp) -> None:
        (result,) = op.results
        match op:
            case ConstantOp():
                self.reads[result] = self.literal(op)
            case ReshapeOp():
                self.reads[result] = self.view(op.x, shape_of(result))
            case SliceOp():
                self.reads[result] = self.slice(op, sizes(op.starts), ints(op.strides))
            case ReverseOp() if has_symbolic_dims(op.x):
                strides = [-1 if a in op.reversed_axes else 1 for a in range(rank_of(op.x))]
                starts = [
                    size - 1 if stride < 0 and size != 0 else 0 for size, stride in zip(shape_of(op.x), strides, strict=True)
                ]
                self.reads[result] = self.slice(op, starts, strides)
            case DataMovement():
                self.reads[result] = self.read(op.operands[0]).through(op.source_map())
            case PadOp() | ConcatOp() if _is_assembled(op):
                self.reads[result] = SourceRead.of(self.assemble(op))
            case Elementwise():
                self.reads[result] = SourceRead.of(lowerings.elementwise(self.builder, op, self, self.store(result)))
            case Reduction():
                self.reads[result] = SourceRead.of(lowerings.reduction(self.builder, op, self, self.store(result)))
            case Window():
                self.reads[result] = SourceRead.of(lowerings.window(self.builder, op, self, self.store(result)))
            case Contraction():
                self.reads[result] = self.contraction(op)
            case GatherLike():
                self.reads[result] = SourceRead.of(lowerings.gather(self.builder, op, self, self.store(result)))
            case ScatterLike():
                rows = lowerings.scatter(self.builder, op, self, self.store(result), in_place=result in self.in_place)
                self.reads[result] = SourceRead.of(rows)
            case _:
                raise UnsupportedError(
                    f"{op.name} in kernel @{self.kernel.symbol} has no lowering to linalg; leave it in @main"
                )

    def literal(self, op: ConstantOp) -> SourceRead:
        value = splat(op.result)
        if value is None:
            raise UnsupportedError(
                f"dl.constant in kernel @{self.kernel.symbol} is not a splat; make it an argument of the kernel"
            )
        element = element_type_of(op.result)
        scalar_value = self.builder.constant(storage_value(value, element), storage_type(element))
        return SourceRead(scalar_value, AffineMap(rank_of(op.result), 0, ()))

    def slice(self, op: SliceOp | ReverseOp, starts: Sequence[Size], strides: Sequence[int]) -> SourceRead:
        """Lower a slice: slice the source tensor along axes that are axes of the operand, and the map along the others.

        An iterator that is an index by itself has the extent of that axis, so a smaller extent needs a slice of the tensor.
        """
        read = self.read(op.x)
        if read.is_scalar:
            return read.through(AffineMap.identity(len(starts)))
        source_axes = [e.position if isinstance(e, AffineDimExpr) else None for e in read.map.results]
        map_axes = {a for e, b in zip(read.map.results, source_axes, strict=True) if b is None for a in e.used_dims()}
        if not is_static(starts[a] for a in map_axes):
            self.materialize(op.x)
            return self.slice(op, starts, strides)
        extents = shape_of(op.result)
        source = self.builder.extract_slice(
            read.source,
            [0 if a is None else starts[a] for a in source_axes],
            [size if a is None else extents[a] for a, size in zip(source_axes, shape(read.source), strict=True)],
            [1 if a is None else strides[a] for a in source_axes],
        )
        first = static_sizes(op, [starts[a] if a in map_axes else 0 for a in range(len(starts))])
        axes = result_iterators(len(starts))
        steps = AffineMap(len(axes), 0, tuple(d * k + s for d, s, k in zip(axes, first, strides, strict=True)))
        stepped = read.map.compose(steps).results
        indices = [e if a is None else AffineExpr.dimension(a) for a, e in zip(source_axes, stepped, strict=True)]
        return SourceRead(source, AffineMap(read.map.num_dims, 0, tuple(indices)))

    def assemble(self, op: PadOp | ConcatOp) -> SSAValue:
        """Lower a pad or concatenation: copy the operands that are not computed in their window."""
        destination = self.destinations[op.result]
        for value, offsets in _assembled_operands(op):
            window = destination.window(offsets, shape_of(value))
            if self.destinations.get(value) != window:
                self.copy_to(window, self.read(value))
        if isinstance(op, PadOp):
            padding_value = self.read(op.value)
            for slice_parameters in padding_windows(destination.sizes, ints(op.low), ints(op.high)):
                self.copy_to(
                    destination.window(*slice_parameters), padding_value.through(AffineMap(len(destination.sizes), 0, ()))
                )
        return destination.read(self.builder)

    def copy_to(self, destination: Destination, read: SourceRead) -> None:
        if 0 in destination.sizes:
            return
        if read.is_scalar:
            destination.write(self.builder, lambda output: self.builder.fill(read.source, output))
        else:
            destination.write(self.builder, lambda output: lowerings.copy(self.builder, read, output))

    def contraction(self, op: Contraction) -> SourceRead:
        """Lower a contraction; if its result has another shape in the contraction's structure, reshape it."""
        (result,) = op.results
        structure = op.structure()
        *_, contraction_shape = structure.views
        shape, element = _shape_and_element(result)
        if contraction_shape == shape:
            return SourceRead.of(lowerings.contraction(self.builder, op, structure, self, self.store(result)))
        computed = lowerings.contraction(
            self.builder, op, structure, self, lambda compute: compute(self.builder.empty(contraction_shape, element))
        )
        flat = SourceRead.of(self.builder.reshape(computed, shape, paired_reshape_groups(contraction_shape, shape)))
        if result not in self.destinations:
            return flat
        return SourceRead.of(self.store(result)(lambda output: lowerings.copy(self.builder, flat, output)))


def _storage(type_: Attribute) -> Attribute:
    """Return a tensor type with the element type that kernels store."""
    return tensor_type(shape_of(type_), storage_type(element_type_of(type_)))


def _shape_and_element(value: SSAValue) -> tuple[tuple[Size, ...], Attribute]:
    return shape_of(value), storage_type(element_type_of(value))


def _is_assembled(op: PadOp | ConcatOp) -> bool:
    """Return whether an op places its operands in windows of the result, with a constant around them."""
    if isinstance(op, ConcatOp):
        return True
    return op.mode == "constant" and min((*ints(op.low), *ints(op.high)), default=0) >= 0


def _assembled_operands(op: PadOp | ConcatOp) -> list[tuple[SSAValue, tuple[Size, ...]]]:
    """Return the operands that are windows of the result, and their offsets."""
    if isinstance(op, PadOp):
        return [(op.x, ints(op.low))]
    operands: list[tuple[SSAValue, tuple[Size, ...]]] = []
    start: Size = 0
    axis, rank = op.concat_axis, rank_of(op.result)
    for value in op.values:
        operands.append((value, tuple(start if a == axis else 0 for a in range(rank))))
        start = start + shape_of(value)[axis]
    return operands
