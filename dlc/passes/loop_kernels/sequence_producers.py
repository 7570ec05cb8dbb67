"""Fusion of elementwise ops on sequences into the scans that read the sequences."""

from __future__ import annotations

from dlc.dialects.dl.base import element_type_of, tensor_type
from dlc.dialects.dl.build import DlBuilder
from dlc.dialects.dl.interfaces import Elementwise
from dlc.dialects.dl.movement.shaping import TransposeOp
from dlc.dialects.dl.programs.control import ScanOp
from dlc.ir import Block, Operation, SSAValue
from dlc.passes.dl.rewriting import erase_dead_ops, transposed
from dlc.passes.loop_kernels.elements import NotLowerableError, static_shape


def fuse_sequence_producers(block: Block, build: DlBuilder) -> None:
    """Fuse the elementwise ops that compute sequences into the scans of a block, which compute one element per step.

        %d = dl.sub %a, %b;  dl.scan %s, %d { ^bb0(%t, %x): … }
      →
        dl.scan %s, %a, %b { ^bb0(%t, %y, %z): %x = dl.sub %y, %z;  … }

    `build` inserts transposes of the values that the block reads. Raises NotLowerableError if elements are no slices.
    """
    for op in list(block.ops):
        if isinstance(op, ScanOp) and any(_is_producer(v.owner, block) for v in op.arguments[op.state_count :]):
            _Fusion(op, block, build).run()
    erase_dead_ops(block)


def _is_producer(op: Operation | Block, block: Block) -> bool:
    return isinstance(op, Elementwise | TransposeOp) and op.parent is block


class _Fusion:
    """The fusion of producers into the body of a scan."""

    def __init__(self, scan: ScanOp, block: Block, build: DlBuilder) -> None:
        self._scan, self._block, self._outer = scan, block, build
        assert scan.block.first_op is not None
        self._inner = DlBuilder(scan.block.first_op)
        self._arguments: list[SSAValue] = []
        self._elements: dict[tuple[SSAValue, int], SSAValue] = {}

    def run(self) -> None:
        """Replace the scan by one that reads the operands of the producers."""
        scan, count, body = self._scan, self._scan.state_count, self._scan.block
        parameters = list(body.args[count:])
        elements = [self._element(v, 0) for v in scan.arguments[count:]]
        for parameter, element in zip(parameters, elements, strict=True):
            parameter.replace_all_uses_with(element)
            body.erase_arg(parameter)
        scan.operands = [*scan.arguments[:count], *self._arguments]

    def _element(self, value: SSAValue, axis: int) -> SSAValue:
        """Return the slice of a value at the current step, along an axis."""
        if (value, axis) not in self._elements:
            owner = value.owner
            if not _is_producer(owner, self._block):
                element = self._sequence(value, axis)
            elif isinstance(owner, TransposeOp):
                source = owner.axes[axis]
                remaining = [a - (a > source) for k, a in enumerate(owner.axes) if k != axis]
                element = transposed(self._inner, self._element(owner.x, source), remaining)
            else:
                assert isinstance(owner, Elementwise)
                element = self._elementwise(owner, axis)
            self._elements[value, axis] = element
        return self._elements[value, axis]

    def _sequence(self, value: SSAValue, axis: int) -> SSAValue:
        """Return a new parameter of the body for the elements of a sequence."""
        if axis and getattr(value.owner, "parent", None) is self._block:
            raise NotLowerableError("a loop reads columns of the results of another")
        order = [axis, *(a for a in range(len(static_shape(value))) if a != axis)]
        self._arguments.append(transposed(self._outer, value, order))
        type_ = tensor_type(static_shape(self._arguments[-1])[1:], element_type_of(value))
        return self._scan.block.insert_arg(type_, len(self._scan.block.args))

    def _elementwise(self, op: Elementwise, axis: int) -> SSAValue:
        (result,) = op.results
        shape = static_shape(result)
        operands: list[SSAValue] = []
        for value in op.operands:
            own = axis - (len(shape) - len(static_shape(value)))
            if own >= 0 and static_shape(value)[own] != shape[axis]:
                raise NotLowerableError("a sequence is computed from a broadcast axis")
            operands.append(value if own < 0 else self._element(value, own))
        type_ = tensor_type((*shape[:axis], *shape[axis + 1 :]), element_type_of(result))
        element = op.create(operands=operands, result_types=[type_], properties=op.properties, attributes=op.attributes)
        return self._inner.insert(element).results[0]
