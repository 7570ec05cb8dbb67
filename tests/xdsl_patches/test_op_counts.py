"""Blocks count their ops by class, whatever is done to them."""

from __future__ import annotations

from collections import Counter
from typing import Any

from dlc.ir import (
    Block,
    ModuleOp,
    Operation,
    Region,
    arith,
    contains,
    contains_any,
    f32,
    func,
    i64,
    op_classes_in,
    op_count,
    ops_of,
    ops_with_regions,
    scf,
    walk_ops,
)


def number() -> arith.ConstantOp:
    return arith.ConstantOp.from_int_and_width(1, i64)


def a_module() -> ModuleOp:
    """Return a module with a function of a constant, a loop with a constant, and a return."""
    first = number()
    loop = scf.ForOp(first, first, first, [], Region(Block([number(), scf.YieldOp()], arg_types=[i64])))
    return ModuleOp([func.FuncOp("main", ([f32], []), Region(Block([first, loop, func.ReturnOp()], arg_types=[f32])))])


def body_of(module: ModuleOp) -> Block:
    main = module.body.block.first_op
    assert isinstance(main, func.FuncOp)
    return main.body.block


def has_correct_counts(op: Operation) -> bool:
    blocks = [block for inner in op.walk() for region in inner.regions for block in region.blocks]
    return all(op_classes_in(block) == Counter(map(type, block.ops)) for block in blocks) and op_count(op) == len(
        list(op.walk())
    )


def test_counts_follow_insertion_and_removal() -> None:
    module = a_module()
    body = body_of(module)
    first, loop, last = body.ops
    assert has_correct_counts(module) and len(body.ops) == 3
    more = [number() for _ in range(4)]
    body.insert_op_before(more[0], first)
    body.insert_op_after(more[1], loop)
    body.insert_ops_before(more[2:], last)
    assert has_correct_counts(module) and op_classes_in(body)[arith.ConstantOp] == 5
    assert has_correct_counts(module.clone())
    for op in more:
        op.detach()
        op.erase()
    assert has_correct_counts(module)
    body.erase_op(loop)
    assert has_correct_counts(module) and scf.ForOp not in op_classes_in(body)
    second = body.split_before(last)
    assert op_classes_in(body) == {arith.ConstantOp: 1} and op_classes_in(second) == {func.ReturnOp: 1}


def test_queries_find_ops() -> None:
    module = a_module()
    for kinds in ((arith.ConstantOp,), (scf.ForOp,), (ModuleOp, scf.YieldOp), (Operation,), (arith.AddiOp,)):
        found = [op for op in module.walk() if isinstance(op, kinds)]
        assert list(walk_ops(module, *kinds)) == found
        assert contains(module, *kinds) == bool(found)
    body = body_of(module)
    assert ops_of(body, arith.ConstantOp) == [body.first_op] and ops_of(body, scf.YieldOp) == []
    assert contains_any(body, (scf.YieldOp, scf.ForOp)) and not contains_any(body, (scf.YieldOp,))


def test_ops_with_regions() -> None:
    module = a_module()
    assert [op.name for op in ops_with_regions(module.body.block)] == ["func.func"]
    assert [op.name for op in ops_with_regions(body_of(module))] == ["scf.for"]
    assert ops_with_regions(Block()) == ops_with_regions(Block([number()])) == []


def test_old_names_of_fields_still_work() -> None:
    block = Block(arg_types=[i64])
    value: Any = block.args[0]
    value._type = f32
    assert value.type == f32 and value.owner is value.block is block
    first, second = (number() for _ in range(2))
    op: Any = first
    op._next_op = second
    assert first.next_op is second and second.next_op is None
