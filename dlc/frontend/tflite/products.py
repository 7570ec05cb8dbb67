"""Products of matrices, and sums along axes."""

from __future__ import annotations

from collections.abc import Callable

from dlc.dialects import dl
from dlc.dialects.dl.base import DlOp
from dlc.dims import product
from dlc.errors import ModelError
from dlc.frontend.emit import Value
from dlc.frontend.problems import NodeProblem
from dlc.frontend.tflite.node import Node, Table

table = Table()

_FULLY_CONNECTED = "activation.i8 weights_format.i8 keep_num_dims.bool asymmetric_inputs.bool"


@table("FULLY_CONNECTED", options=_FULLY_CONNECTED)
def fully_connected(node: Node) -> Value:
    """Weights [O, I]; the result is [N, O] unless it keeps the axes."""
    emit, x, w = node.emit, node.real(0), node.real(1)
    if node.integer("weights_format"):
        raise NodeProblem("attribute", "shuffled weights are not supported")
    if w.rank != 2:
        raise ModelError(f"{node.place}: weights of shape {list(w.shape)}; expected [O, I]")
    if not (node.flag("keep_num_dims") and x.rank >= 2):
        x = emit.reshape(x, (product(x.shape) // w.shape[1], w.shape[1]))
    y = emit(dl.MatmulOp, x, emit.transpose(w, (1, 0)))
    return node.finished(y if node.get(2) is None else emit(dl.AddOp, y, node.real(2)))


@table("BATCH_MATMUL", options="adj_x.bool adj_y.bool asymmetric_inputs.bool")
def batch_matmul(node: Node) -> Value:
    def operand(k: int, turned: bool) -> Value:
        x = node.real(k)
        return node.emit.transpose(x, (*range(x.rank - 2), x.rank - 1, x.rank - 2)) if turned else x

    return node.finished(node.emit(dl.MatmulOp, operand(0, node.flag("adj_x")), operand(1, node.flag("adj_y"))))


def _reduced(op: type[DlOp]) -> Callable[[Node], Value]:
    def convert(node: Node) -> Value:
        x = node.real(0)
        axes = tuple(sorted({node.axis(axis, x.rank) for axis in node.integers_of(1, "axes")}))
        return node.finished(node.emit(op, x, axes=axes, keepdims=node.flag("keep_dims")) if axes else x)

    return convert


_REDUCTIONS: dict[str, type[DlOp]] = {
    "MEAN": dl.ReduceMeanOp, "SUM": dl.ReduceSumOp, "REDUCE_MAX": dl.ReduceMaxOp, "REDUCE_MIN": dl.ReduceMinOp,
    "REDUCE_PROD": dl.ReduceProdOp, "REDUCE_ANY": dl.ReduceAnyOp, "REDUCE_ALL": dl.ReduceAllOp,
}  # fmt: skip
for _kind, _op in _REDUCTIONS.items():
    table(_kind, options="keep_dims.bool")(_reduced(_op))


@table("ARG_MAX", "ARG_MIN", options="output_type.i8")
def arg_extremum(node: Node) -> Value:
    op = dl.ArgmaxOp if node.operator.kind == "ARG_MAX" else dl.ArgminOp
    x = node[0]
    found = node.emit(op, x, axis=node.axis(node.number(1, "axis"), x.rank), keepdims=False)
    return node.emit.cast(found, node.element())


@table("CUMSUM", options="exclusive.bool reverse.bool")
def cumsum(node: Node) -> Value:
    x = node.real(0)
    axis = node.axis(node.number(1, "axis"), x.rank)
    return node.finished(node.emit(dl.CumsumOp, x, axis=axis, exclusive=node.flag("exclusive"), reverse=node.flag("reverse")))


@table("L2_NORMALIZATION", options="activation.i8")
def l2_normalization(node: Node) -> Value:
    emit, x = node.emit, node.real(0)
    squares = emit(dl.ReduceSumOp, emit(dl.MulOp, x, x), axes=(x.rank - 1,), keepdims=True)
    norm = emit(dl.MaximumOp, emit(dl.SqrtOp, squares), emit.scalar(1e-6, x))
    return node.finished(emit(dl.DivOp, x, norm))
