"""Matrix products computed jointly by the work-items of a warp.

The accumulators are variables, which a helper function of the dialect updates.
"""

from __future__ import annotations

from dlc.dialects.matrix_multiply import SubgroupMatmulOp
from dlc.emission.c.core import CWriter
from dlc.emission.c.statements import concat
from dlc.emission.common.emitter import Handlers
from dlc.ir import Operation, vector


def multiply_words(writer: CWriter, op: Operation) -> None:
    assert isinstance(op, SubgroupMatmulOp)
    sums = (op.upper_sums, op.lower_sums)
    names = [writer.name(hint) for result in op.results for hint in writer.hints(result, "sums")]
    register_types = [t for v in sums for t in writer.layout(v.type)]
    for name, t, accumulator in zip(
        names, register_types, (register for v in sums for register in writer.regs(v)), strict=True
    ):
        writer.assign(name, accumulator, writer.type(t))
    factors = [register for v in (op.rows, op.words) for register in writer.regs(v)]
    operands = [*(concat("&", name) for name in names), *factors]
    (type,), (source_type,) = set(register_types), {r for v in (op.rows, op.words) for r in writer.layout(v.type)}
    writer.emit(writer.expression(f"multiply_words.{op.dot.data}", type, *operands, source_type=source_type), ";")
    half = len(names) // 2
    writer.bind(op.upper_result, names[:half])
    writer.bind(op.lower_result, names[half:])


def shuffle(writer: CWriter, op: Operation) -> None:
    """Emit `vector.shuffle` of two rows."""
    assert isinstance(op, vector.ShuffleOp)
    lanes: list[str] = []
    for value in (op.v1, op.v2):
        for t, name in zip(writer.layout(value.type), writer.regs(value), strict=True):
            lanes += [writer.lane(t, name, i) for i in range(t.used)]
    elements, names = [lanes[i] for i in op.mask.get_values()], list[str]()
    for t, hint in zip(writer.layout(op.result.type), writer.hints(op.result, "shuffle"), strict=True):
        register_lanes, elements = elements[: t.width], elements[t.width :]
        names.append(writer.compute(t, writer.from_lanes(t, register_lanes), hint, movable=True))
    writer.bind(op.result, names)


HANDLERS: Handlers = {SubgroupMatmulOp.name: multiply_words, "vector.shuffle": shuffle}
