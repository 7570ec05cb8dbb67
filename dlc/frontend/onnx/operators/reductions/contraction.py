"""Matrix products: MatMul, Gemm, Einsum; and determinants."""

from __future__ import annotations

from dlc.dialects import dl
from dlc.dialects.dl.dtypes import is_integer
from dlc.errors import ModelError
from dlc.frontend.emitter import ImportedValue
from dlc.frontend.onnx.node import OnnxNode
from dlc.frontend.onnx.registry import ConverterTable
from dlc.ir import bf16, f16, f32, f64

table = ConverterTable()


@table("MatMul")
def matmul(node: OnnxNode) -> ImportedValue:
    return node.emit(dl.MatmulOp, node[0], node[1])


@table("Gemm")
def gemm(node: OnnxNode) -> ImportedValue:
    emit, a, b, c = node.emit, node[0], node[1], node.get(2)
    if a.rank != 2 or b.rank != 2:
        raise ModelError(f"{node.description}: expected two matrices, got ranks {a.rank} and {b.rank}")
    if node.flag("transA"):
        a = emit.transpose(a, (1, 0))
    if node.flag("transB"):
        b = emit.transpose(b, (1, 0))
    to, alpha, beta = a.element_type, node.real("alpha", 1.0), node.real("beta", 1.0)
    result = emit(dl.MatmulOp, a, b, result=f32 if to in (f16, bf16) else None)
    if is_integer(to) and not (alpha.is_integer() and beta.is_integer()):
        # Fractions of integers are computed in f64 and truncated.
        result, c = emit.cast(result, f64), None if c is None else emit.cast(c, f64)
    result = _scaled(node, result, alpha)
    if c is not None:
        result = emit(dl.AddOp, result, _scaled(node, emit.widen(c), beta))
    return emit.cast(result, to)


def _scaled(node: OnnxNode, x: ImportedValue, factor: float) -> ImportedValue:
    return x if factor == 1.0 else node.emit(dl.MulOp, x, node.emit.scalar(factor, x))


@table("Einsum")
def einsum(node: OnnxNode) -> ImportedValue:
    terms, result_labels = _einsum_terms(node)
    operands = [node[k] for k in range(len(node.inputs))]
    if len(operands) != len(terms) or any(len(t) != v.rank for t, v in zip(terms, operands, strict=False)):
        raise ModelError(
            f"{node.description}: the equation '{node.string('equation')}' does not match its {len(operands)} inputs"
        )
    for k in range(len(operands)):
        operands[k], terms[k] = _diagonals(node, operands[k], terms[k])
    nontrivial_labels = {
        c for v, t in zip(operands, terms, strict=True) for c, size in zip(t, v.shape, strict=True) if size != 1
    }
    for k in range(len(operands)):
        operands[k], terms[k] = _broadcast(node, operands[k], terms[k], nontrivial_labels)
    value, labels = operands[0], terms[0]
    for k in range(1, len(operands)):
        required_labels = set(result_labels).union(*terms[k + 1 :])
        value, labels = _contract(node, (value, labels), (operands[k], terms[k]), required_labels)
    value, labels = _reduce_labels(node, value, labels, set(result_labels))
    return node.emit.transpose(value, [labels.index(name) for name in result_labels])


def _einsum_terms(node: OnnxNode) -> tuple[list[str], str]:
    """Return the labels of each operand and of the result; an ellipsis becomes Greek letters, which are not valid labels."""
    equation = node.string("equation").replace(" ", "")
    operand_labels, arrow, result_labels = equation.partition("->")
    terms = operand_labels.split(",")
    ranks = {k: node[k].rank - len(t) + 3 for k, t in enumerate(terms) if "..." in t and k < len(node.inputs)}
    ellipsis_labels = "".join(chr(ord("α") + k) for k in range(max(ranks.values(), default=0)))
    # The axes of an ellipsis are aligned at the last one, like broadcast shapes.
    terms = [t.replace("...", ellipsis_labels[len(ellipsis_labels) - ranks.get(k, 0) :]) for k, t in enumerate(terms)]
    if not arrow:
        single_labels = sorted(c for c in set("".join(terms)) if "".join(terms).count(c) == 1 and c not in ellipsis_labels)
        result_labels = "..." + "".join(single_labels) if ellipsis_labels else "".join(single_labels)
    return terms, result_labels.replace("...", ellipsis_labels)


def _diagonals(node: OnnxNode, x: ImportedValue, labels: str) -> tuple[ImportedValue, str]:
    """Extract the diagonals of repeated labels."""
    emit = node.emit
    for k, label in reversed(list(enumerate(labels))):
        first = labels.index(label)
        if first == k:
            continue
        rows, columns = (emit.reshape(emit.iota(x.shape[a]), (x.shape[a], *(1,) * (x.rank - 1 - a))) for a in (first, k))
        on_diagonal = emit(dl.SelectOp, emit(dl.EqualOp, rows, columns), x, emit.scalar(0, x))
        x, labels = emit(dl.ReduceSumOp, on_diagonal, axes=(k,), keepdims=False), labels[:k] + labels[k + 1 :]
    return x, labels


def _broadcast(node: OnnxNode, x: ImportedValue, labels: str, nontrivial_labels: set[str]) -> tuple[ImportedValue, str]:
    """Drop the axes of size 1 whose labels have other sizes in other operands."""
    remaining_axes = [
        k for k, (c, size) in enumerate(zip(labels, x.shape, strict=True)) if size != 1 or c not in nontrivial_labels
    ]
    return node.emit.reshape(x, [x.shape[k] for k in remaining_axes]), "".join(labels[k] for k in remaining_axes)


def _contract(
    node: OnnxNode, lhs: tuple[ImportedValue, str], rhs: tuple[ImportedValue, str], needed: set[str]
) -> tuple[ImportedValue, str]:
    """Contract two labelled tensors over the labels that are not in `needed`."""
    (a, a_labels), (b, b_labels) = lhs, rhs
    a, a_labels = _reduce_labels(node, a, a_labels, needed | set(b_labels))
    b, b_labels = _reduce_labels(node, b, b_labels, needed | set(a_labels))
    shared = [c for c in a_labels if c in b_labels]
    batch, summed = [c for c in shared if c in needed], [c for c in shared if c not in needed]
    product = node.emit(
        dl.DotGeneralOp,
        a,
        b,
        lhs_batch=[a_labels.index(c) for c in batch],
        rhs_batch=[b_labels.index(c) for c in batch],
        lhs_contract=[a_labels.index(c) for c in summed],
        rhs_contract=[b_labels.index(c) for c in summed],
    )
    free_labels = [c for labels in (a_labels, b_labels) for c in labels if c not in shared]
    return product, "".join((*batch, *free_labels))


def _reduce_labels(node: OnnxNode, value: ImportedValue, labels: str, needed: set[str]) -> tuple[ImportedValue, str]:
    axes = [k for k, c in enumerate(labels) if c not in needed]
    if not axes:
        return value, labels
    return node.emit(dl.ReduceSumOp, value, axes=axes, keepdims=False), "".join(c for c in labels if c in needed)


@table("Det", since=11)
def det(node: OnnxNode) -> ImportedValue:
    """Return the product of the pivots of the LU decomposition, with the sign of the row exchanges."""
    emit, x = node.emit, node[0]
    factors, _, sign, _ = emit.all_results(dl.LuOp, x)
    n = factors.shape[-1]
    positions = emit.iota(n)
    is_diagonal = emit(dl.EqualOp, emit.reshape(positions, (n, 1)), positions)
    diagonal = emit(dl.SelectOp, is_diagonal, factors, emit.scalar(0, factors))
    pivots = emit(dl.ReduceSumOp, diagonal, axes=(x.rank - 1,))
    return emit(dl.MulOp, emit(dl.ReduceProdOp, pivots, axes=(x.rank - 2,)), emit.cast(sign, x.element_type))
