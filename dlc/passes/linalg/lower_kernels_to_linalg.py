"""`lower-kernels-to-linalg`: each kernel of `dl` ops as structured ops on tensors."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from dlc.dialects.dl.base import DlOp, element_type_of, ints, rank_of, shape_of, sizes, tensor_type
from dlc.dialects.dl.creation import ConstantOp
from dlc.dialects.dl.dtypes import stored_number
from dlc.dialects.dl.interfaces import (
    Composite,
    Contraction,
    Elementwise,
    Gathering,
    Movement,
    Reduction,
    Scattering,
    Window,
    storage_type,
)
from dlc.dialects.dl.movement.padding import PadOp
from dlc.dialects.dl.movement.shaping import ConcatOp, ReshapeOp, SliceOp, axis_expressions, static_sizes
from dlc.dialects.dl.programs.program import KernelOp, written_over
from dlc.dims import Size
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
    func,
    index,
)
from dlc.passes.dl.rewriting import rewrite_forward, splat
from dlc.passes.linalg import lowerings
from dlc.passes.linalg.destinations import Destination, Root, borders
from dlc.passes.linalg.on_buffers import describe, result_name
from dlc.passes.linalg.reads import Read, reshape_groups, reshape_map
from dlc.passes.linalg.write import Writer, shape
from dlc.passes.procedures.write_kernel import procedure_of, written
from dlc.passes.structured import Constants, Place

# Ops whose result is computed, so that it can be computed where it is wanted.
_COMPUTED = (Elementwise, Reduction, Contraction, Window, Gathering, Scattering)


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

    Transposes, broadcasts, slices and unpacked weights become the indexing maps of their readers. What a pad or a
    concatenation is made of is computed in its window of the result. Sizes that a kernel is given at each dispatch are its
    last arguments, of type `index`. A procedure is written as the loops that it is, on buffers: no later stage has anything
    to decide about them. Requires kernels without weights.
    """

    name = "lower-kernels-to-linalg"

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        kernels = [k for k in op.ops if isinstance(k, KernelOp)]
        functions = [_lowered(k) for k in kernels]
        for kernel in kernels:
            kernel.detach()
            kernel.erase()
        op.body.block.add_op(ModuleOp(functions, sym_name=StringAttr("kernels")))


def _lowered(kernel: KernelOp) -> func.FuncOp:
    procedure = procedure_of(kernel)
    return _KernelLowering(kernel).run() if procedure is None else written(kernel, procedure)


def _decomposed(op: DlOp) -> Sequence[SSAValue] | None:
    return op.decompose(*op.operands) if isinstance(op, Composite) else None


class _KernelLowering:
    def __init__(self, kernel: KernelOp) -> None:
        rewrite_forward(kernel.body.block, _decomposed)
        self.kernel = kernel
        inputs = [_storage(t) for t in kernel.function_type.inputs.data]
        outputs = [_storage(t) for t in kernel.function_type.outputs.data]
        body = Block(arg_types=[*inputs, *outputs, *(index for _ in kernel.representative)])
        self.function = func.FuncOp(kernel.symbol, FunctionType.from_lists(body.arg_types, outputs), Region(body))
        describe(self.function, kernel)
        self.write = Writer(Place(Constants(self.function), body))
        self.reads: dict[SSAValue, Read] = {}
        for given, argument in zip(kernel.body.block.args, body.args, strict=False):
            argument.name_hint = given.name_hint
            self.reads[given] = Read.of(argument)
        self.outputs: list[Root] = []
        for i, argument in enumerate(body.args[len(inputs) : len(inputs) + len(outputs)]):
            argument.name_hint = result_name(i, len(outputs))
            self.outputs.append(Root(*_shape_and_element(argument), argument))
        self.destinations: dict[SSAValue, Destination] = {}
        # What is written over the argument that it is made of.
        self.in_place = {kernel.yielded[result] for result in written_over(kernel)}

    def run(self) -> func.FuncOp:
        self.choose_destinations()
        for op in self.kernel.body.block.ops:
            if isinstance(op, DlOp):
                self.write.at(op.location)
                self.lower(op)
        self.write.at(self.kernel.location)
        for value, root in zip(self.kernel.yielded, self.outputs, strict=True):
            if not root.written:
                read = self.read(value)
                Destination.whole(root).write(self.write, lambda target, read=read: lowerings.copy(self.write, read, target))
        self.write.place.insert(func.ReturnOp(*(root.value(self.write) for root in self.outputs)))
        return self.function

    # Where results are written

    def choose_destinations(self) -> None:
        """Gives computed values their place in an output or in the window of the pad or concatenation that takes them."""
        for value, root in zip(self.kernel.yielded, self.outputs, strict=True):
            self.claim(value, Destination.whole(root))
        for op in reversed(list(self.kernel.body.block.ops)):
            if not isinstance(op, PadOp | ConcatOp) or not _is_assembled(op):
                continue
            whole = shape_of(op.result)
            element = storage_type(element_type_of(op.result))
            target = self.destinations.setdefault(op.result, Destination.whole(Root(whole, element)))
            for value, offsets in _parts(op):
                if len(list(value.uses)) == 1:
                    self.claim(value, target.window(offsets, shape_of(value)))

    def claim(self, value: SSAValue, destination: Destination) -> None:
        if isinstance(value.owner, _COMPUTED):
            self.destinations.setdefault(value, destination)

    def store(self, value: SSAValue) -> lowerings.Store:
        """Stores a result where it is wanted."""

        def into(compute: Callable[[SSAValue], SSAValue]) -> SSAValue:
            destination = self.destinations.get(value)
            if destination is None:
                return compute(self.write.empty(*_shape_and_element(value)))
            return destination.write(self.write, compute)

        return into

    # How operands are read

    def read(self, value: SSAValue) -> Read:
        return self.reads[value]

    def materialised(self, value: SSAValue) -> SSAValue:
        """A tensor that holds the value as it stands."""
        read = self.read(value)
        if not read.is_tensor:
            self.reads[value] = read = Read.of(lowerings.copy(self.write, read, self.write.empty(*_shape_and_element(value))))
        return read.source

    def view(self, value: SSAValue, to: Sequence[Size]) -> Read:
        """The value's elements in row-major order as another shape."""
        sizes, read = shape_of(value), self.read(value)
        if sizes == tuple(to):
            return read
        if read.is_scalar:
            return Read(read.source, AffineMap(len(to), 0, ()))
        units = reshape_map(sizes, to, units_only=True)
        split = reshape_map(sizes, to, units_only=False)
        if units is not None:
            return read.through(units)
        if split is not None and not read.is_tensor:
            return read.through(split)
        return Read.of(self.write.reshape(self.materialised(value), to, reshape_groups(sizes, to)))

    # Ops

    def lower(self, op: DlOp) -> None:
        (result,) = op.results
        match op:
            case ConstantOp():
                self.reads[result] = self.literal(op)
            case ReshapeOp():
                self.reads[result] = self.view(op.x, shape_of(result))
            case SliceOp():
                self.reads[result] = self.slice(op)
            case Movement():
                self.reads[result] = self.read(op.operands[0]).through(op.source_map())
            case PadOp() | ConcatOp() if _is_assembled(op):
                self.reads[result] = Read.of(self.assemble(op))
            case Elementwise():
                self.reads[result] = Read.of(lowerings.elementwise(self.write, op, self, self.store(result)))
            case Reduction():
                self.reads[result] = Read.of(lowerings.reduction(self.write, op, self, self.store(result)))
            case Window():
                self.reads[result] = Read.of(lowerings.window(self.write, op, self, self.store(result)))
            case Contraction():
                self.reads[result] = self.contraction(op)
            case Gathering():
                self.reads[result] = Read.of(lowerings.gathering(self.write, op, self, self.store(result)))
            case Scattering():
                rows = lowerings.scattering(self.write, op, self, self.store(result), in_place=result in self.in_place)
                self.reads[result] = Read.of(rows)
            case _:
                raise UnsupportedError(f"{op.name} in kernel @{self.kernel.symbol} has no lowering to linalg; keep it in @main")

    def literal(self, op: ConstantOp) -> Read:
        value = splat(op.result)
        if value is None:
            raise UnsupportedError(
                f"dl.constant of several values in kernel @{self.kernel.symbol}: kernels hold one number; make it an argument"
            )
        element = element_type_of(op.result)
        number = self.write.number(stored_number(value, element), storage_type(element))
        return Read(number, AffineMap(rank_of(op.result), 0, ()))

    def slice(self, op: SliceOp) -> Read:
        """A slice of the tensor behind the operand along its axes that are the operand's, through the map along others.

        An iterator that reads an axis by itself has the axis's extent, so that a shorter one needs a shorter tensor.
        """
        read, starts, strides = self.read(op.x), sizes(op.starts), ints(op.strides)
        if read.is_scalar:
            return read.through(AffineMap.identity(len(starts)))
        own = [e.position if isinstance(e, AffineDimExpr) else None for e in read.map.results]
        extents = shape_of(op.result)
        source = self.write.extract_slice(
            read.source,
            [0 if a is None else starts[a] for a in own],
            [size if a is None else extents[a] for a, size in zip(own, shape(read.source), strict=True)],
            [1 if a is None else strides[a] for a in own],
        )
        others = {a for e, b in zip(read.map.results, own, strict=True) if b is None for a in e.used_dims()}
        first = static_sizes(op, [starts[a] if a in others else 0 for a in range(len(starts))])
        axes = axis_expressions(len(starts))
        steps = AffineMap(len(axes), 0, tuple(d * k + s for d, s, k in zip(axes, first, strides, strict=True)))
        stepped = read.map.compose(steps).results
        places = [e if a is None else AffineExpr.dimension(a) for a, e in zip(own, stepped, strict=True)]
        return Read(source, AffineMap(read.map.num_dims, 0, tuple(places)))

    def assemble(self, op: PadOp | ConcatOp) -> SSAValue:
        """A padded tensor or a concatenation: parts that are not in their window yet are copied there."""
        target = self.destinations[op.result]
        for value, offsets in _parts(op):
            window = target.window(offsets, shape_of(value))
            if self.destinations.get(value) != window:
                self.copy_to(window, self.read(value))
        if isinstance(op, PadOp):
            border = self.read(op.value)
            for box in borders(target.sizes, ints(op.low), ints(op.high)):
                self.copy_to(target.window(*box), border.through(AffineMap(len(target.sizes), 0, ())))
        return target.read(self.write)

    def copy_to(self, destination: Destination, read: Read) -> None:
        if 0 in destination.sizes:
            return
        if read.is_scalar:
            destination.write(self.write, lambda target: self.write.fill(read.source, target))
        else:
            destination.write(self.write, lambda target: lowerings.copy(self.write, read, target))

    def contraction(self, op: Contraction) -> Read:
        """A contraction; where it sees its result as another shape, it is computed so and read through a reshape."""
        (result,) = op.results
        structure = op.structure()
        *_, seen = structure.views
        shape, element = _shape_and_element(result)
        if seen == shape:
            return Read.of(lowerings.contraction(self.write, op, structure, self, self.store(result)))
        computed = lowerings.contraction(
            self.write, op, structure, self, lambda compute: compute(self.write.empty(seen, element))
        )
        flat = Read.of(self.write.reshape(computed, shape, reshape_groups(seen, shape)))
        if result not in self.destinations:
            return flat
        return Read.of(self.store(result)(lambda target: lowerings.copy(self.write, flat, target)))


def _storage(type_: Attribute) -> Attribute:
    """A tensor type as kernels store it."""
    return tensor_type(shape_of(type_), storage_type(element_type_of(type_)))


def _shape_and_element(value: SSAValue) -> tuple[tuple[Size, ...], Attribute]:
    return shape_of(value), storage_type(element_type_of(value))


def _is_assembled(op: PadOp | ConcatOp) -> bool:
    """Whether an op is its operands in windows of the result, with one value around them."""
    if isinstance(op, ConcatOp):
        return True
    return op.mode == "constant" and min((*ints(op.low), *ints(op.high)), default=0) >= 0


def _parts(op: PadOp | ConcatOp) -> list[tuple[SSAValue, tuple[Size, ...]]]:
    """The operands that are windows of the result, and where they start."""
    if isinstance(op, PadOp):
        return [(op.x, ints(op.low))]
    parts: list[tuple[SSAValue, tuple[Size, ...]]] = []
    start: Size = 0
    axis, rank = op.joined_axis, rank_of(op.result)
    for value in op.values:
        parts.append((value, tuple(start if a == axis else 0 for a in range(rank))))
        start = start + shape_of(value)[axis]
    return parts
