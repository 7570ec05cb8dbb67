"""Reductions along axes."""

from __future__ import annotations

from dlc.dialects import dl
from dlc.dialects.dl.base import DlOp, normalized_axes
from dlc.dialects.dl.dtypes import is_float
from dlc.frontend.emitter import ImportedValue
from dlc.frontend.onnx.node import OnnxNode
from dlc.frontend.onnx.registry import Converter, ConverterTable
from dlc.ir import f64

table = ConverterTable()


def _axes(node: OnnxNode, as_input: bool) -> tuple[int, ...]:
    """Return the reduced axes: all if none are specified, or none with noop_with_empty_axes."""
    axes: tuple[int, ...] = ()
    if not as_input:
        axes = node.integers("axes", ())
    elif node.get(1) is not None:
        axes = node.constant_integers(1, "axes")
    if not axes:
        reduces_nothing = as_input and node.flag("noop_with_empty_axes")
        return () if reduces_nothing else tuple(range(node[0].rank))
    node.ignore_attributes("noop_with_empty_axes")
    return tuple(sorted(normalized_axes(None, axes, node[0].rank)))


def _reduce(op: type[DlOp], as_input: bool) -> Converter:
    def convert(node: OnnxNode) -> ImportedValue:
        keepdims = node.flag("keepdims", True)
        axes = _axes(node, as_input)
        # Without axes, the elementwise function still applies: |x|, x², log eˣ.
        if not axes and op in (dl.ReduceSumOp, dl.ReduceMaxOp, dl.ReduceMinOp, dl.ReduceProdOp, dl.ReduceMeanOp):
            return node[0]
        x, emit = node[0], node.emit
        if op in (dl.ReduceL2Op, dl.ReduceLogSumOp, dl.ReduceLogSumExpOp) and not is_float(x.element_type):
            return emit.cast(emit(op, emit.cast(x, f64), axes=axes, keepdims=keepdims), x.element_type)
        return emit(op, x, axes=axes, keepdims=keepdims)

    return convert


table("ReduceSum", until=12)(_reduce(dl.ReduceSumOp, as_input=False))
table("ReduceSum", since=13)(_reduce(dl.ReduceSumOp, as_input=True))
for _name, _op in {
    "ReduceMax": dl.ReduceMaxOp, "ReduceMin": dl.ReduceMinOp, "ReduceProd": dl.ReduceProdOp, "ReduceMean": dl.ReduceMeanOp,
    "ReduceL1": dl.ReduceL1Op, "ReduceL2": dl.ReduceL2Op, "ReduceLogSum": dl.ReduceLogSumOp,
    "ReduceLogSumExp": dl.ReduceLogSumExpOp, "ReduceSumSquare": dl.ReduceSumSquareOp,
}.items():  # fmt: skip
    table(_name, until=17)(_reduce(_op, as_input=False))
    table(_name, since=18)(_reduce(_op, as_input=True))


def _arg(op: type[DlOp]) -> Converter:
    def convert(node: OnnxNode) -> ImportedValue:
        axis = node.axis(node.integer("axis", 0), node[0].rank)
        return node.emit(
            op, node[0], axis=axis, keepdims=node.flag("keepdims", True), select_last=node.flag("select_last_index")
        )

    return convert


table("ArgMax")(_arg(dl.ArgmaxOp))
table("ArgMin")(_arg(dl.ArgminOp))
