"""A sample as a program: a `dl` module whose `@main` is the op alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from numpy.typing import NDArray

from dlc.dialects.dl.base import DlOp, PropertyValue, Tensor
from dlc.dialects.dl.interfaces import Composite
from dlc.dialects.dl.programs.control import Control
from dlc.dialects.dl.programs.program import YieldOp
from dlc.ir import ArrayAttr, Block, DictionaryAttr, FunctionType, ModuleOp, Region, SSAValue, StringAttr, func
from dlc.testing.sample import Sample


def op_of(module: ModuleOp) -> DlOp:
    """Return the sampled op of a module by `module_of`."""
    main = next(iter(module.ops))
    assert isinstance(main, func.FuncOp)
    op = main.body.block.first_op
    assert isinstance(op, DlOp)
    return op


def module_of(
    sample: Sample,
    properties: Mapping[str, PropertyValue] | None = None,
    operand_types: Sequence[Tensor] | None = None,
) -> ModuleOp:
    """Return a module with `@main` from the sample's operands, named `x0`, `x1`, …, to the op's results, named `y0`, `y1`, …

    `properties` and `operand_types` replace those of the sample.
    """
    block = Block(arg_types=sample.operand_types if operand_types is None else operand_types)
    op = sample.op.make(*block.args, **{**sample.properties, **(properties or {})})
    block.add_ops([op, func.ReturnOp(*op.results)])

    main = func.FuncOp(
        "main",
        FunctionType.from_lists([a.type for a in block.args], [r.type for r in op.results]),
        Region(block),
        arg_attrs=named("x", len(block.args)),
        res_attrs=named("y", len(op.results)),
    )
    return ModuleOp([main])


def named(prefix: str, count: int) -> ArrayAttr[DictionaryAttr] | None:
    """Return the attributes that name `count` arguments or results of a function."""
    names = [DictionaryAttr({"dl.name": StringAttr(f"{prefix}{i}")}) for i in range(count)]
    return ArrayAttr(names) if names else None


def decomposed_results(op: DlOp, operands: tuple[NDArray[Any], ...]) -> list[NDArray[Any]]:
    """Evaluate the op by its decomposition, down to ops that have none."""
    if not isinstance(op, Composite):
        return list(op.evaluate(*operands))
    block = Block(arg_types=op.operand_types)
    whole = type(op).create(operands=block.args, properties=op.properties, result_types=op.result_types)
    block.add_op(whole)
    results = whole.decompose(*block.args)
    assert [r.type for r in results] == list(op.result_types)
    whole.detach()
    values: dict[SSAValue, NDArray[Any]] = {}

    def run(block: Block, arguments: Sequence[NDArray[Any]]) -> Sequence[NDArray[Any]]:
        values.update(zip(block.args, arguments, strict=True))
        for step in block.ops:
            operands = tuple(values[v] for v in step.operands)
            if isinstance(step, YieldOp):
                return operands
            assert isinstance(step, DlOp | Control)
            inner = step.execute(operands, run) if isinstance(step, Control) else decomposed_results(step, operands)
            values.update(zip(step.results, inner, strict=True))
        return ()

    run(block, operands)
    return [values[r] for r in results]
