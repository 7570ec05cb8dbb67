"""Matrix products, and reductions along axes."""

from __future__ import annotations

from collections.abc import Callable

from dlc.dialects import dl
from dlc.dialects.dl.base import DlOp
from dlc.errors import ModelError
from dlc.frontend.emitter import ImportedValue
from dlc.frontend.problems import NodeProblem
from dlc.frontend.tflite.node import TfliteConverterTable, TfliteNode
from dlc.shapes.dims import product

table = TfliteConverterTable()

_FULLY_CONNECTED = "activation.i8 weights_format.i8 keep_num_dims.bool asymmetric_inputs.bool"


@table("FULLY_CONNECTED", options=_FULLY_CONNECTED)
def fully_connected(node: TfliteNode) -> ImportedValue:
    """Weights [O, I]; the result is [N, O] unless keep_num_dims is set."""
    emit, x, w = node.emit, node.dequantized(0), node.dequantized(1)
    if node.integer("weights_format"):
        raise NodeProblem("attribute", "shuffled weights are not supported")
    if w.rank != 2:
        raise ModelError(f"{node.description}: weights of shape {list(w.shape)}; expected [O, I]")
    if not (node.flag("keep_num_dims") and x.rank >= 2):
        x = emit.reshape(x, (product(x.shape) // w.shape[1], w.shape[1]))
    y = emit(dl.MatmulOp, x, emit.transpose(w, (1, 0)))
    return node.activate_and_quantize(y if node.get(2) is None else emit(dl.AddOp, y, node.dequantized(2)))


@table("BATCH_MATMUL", options="adj_x.bool adj_y.bool asymmetric_inputs.bool")
def batch_matmul(node: TfliteNode) -> ImportedValue:
    def operand(k: int, transposed: bool) -> ImportedValue:
        x = node.dequantized(k)
        return node.emit.transpose(x, (*range(x.rank - 2), x.rank - 1, x.rank - 2)) if transposed else x

    return node.activate_and_quantize(node.emit(dl.MatmulOp, operand(0, node.flag("adj_x")), operand(1, node.flag("adj_y"))))


def _reduce(op: type[DlOp]) -> Callable[[TfliteNode], ImportedValue]:
    def convert(node: TfliteNode) -> ImportedValue:
        x = node.dequantized(0)
        axes = tuple(sorted({node.axis(axis, x.rank) for axis in node.constant_integers(1, "axes")}))
        return node.activate_and_quantize(node.emit(op, x, axes=axes, keepdims=node.flag("keep_dims")) if axes else x)

    return convert


_REDUCTIONS: dict[str, type[DlOp]] = {
    "MEAN": dl.ReduceMeanOp, "SUM": dl.ReduceSumOp, "REDUCE_MAX": dl.ReduceMaxOp, "REDUCE_MIN": dl.ReduceMinOp,
    "REDUCE_PROD": dl.ReduceProdOp, "REDUCE_ANY": dl.ReduceAnyOp, "REDUCE_ALL": dl.ReduceAllOp,
}  # fmt: skip
for _kind, _op in _REDUCTIONS.items():
    table(_kind, options="keep_dims.bool")(_reduce(_op))


@table("ARG_MAX", "ARG_MIN", options="output_type.i8")
def arg_extremum(node: TfliteNode) -> ImportedValue:
    op = dl.ArgmaxOp if node.operator.kind == "ARG_MAX" else dl.ArgminOp
    x = node[0]
    indices = node.emit(op, x, axis=node.axis(node.scalar_input(1, "axis"), x.rank), keepdims=False)
    return node.emit.cast(indices, node.element_type())


@table("CUMSUM", options="exclusive.bool reverse.bool")
def cumsum(node: TfliteNode) -> ImportedValue:
    x = node.dequantized(0)
    axis = node.axis(node.scalar_input(1, "axis"), x.rank)
    return node.activate_and_quantize(
        node.emit(dl.CumsumOp, x, axis=axis, exclusive=node.flag("exclusive"), reverse=node.flag("reverse"))
    )


@table("L2_NORMALIZATION", options="activation.i8")
def l2_normalization(node: TfliteNode) -> ImportedValue:
    emit, x = node.emit, node.dequantized(0)
    squares = emit(dl.ReduceSumOp, emit(dl.MulOp, x, x), axes=(x.rank - 1,), keepdims=True)
    norm = emit(dl.MaximumOp, emit(dl.SqrtOp, squares), emit.scalar(1e-6, x))
    return node.activate_and_quantize(emit(dl.DivOp, x, norm))
