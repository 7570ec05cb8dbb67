"""Blocks know what is in them, whatever is done to them."""

from __future__ import annotations

from collections import Counter
from typing import Any

from dlc.ir import (
    Block,
    ModuleOp,
    Operation,
    Region,
    all_of,
    arith,
    contains,
    f32,
    func,
    holds_any,
    i64,
    kinds_in,
    op_count,
    ops_of,
    scf,
    with_regions,
)


def number() -> arith.ConstantOp:
    return arith.ConstantOp.from_int_and_width(1, i64)


def a_module() -> ModuleOp:
    """A function of a constant, a loop with a constant, and a return."""
    first = number()
    loop = scf.ForOp(first, first, first, [], Region(Block([number(), scf.YieldOp()], arg_types=[i64])))
    return ModuleOp([func.FuncOp("main", ([f32], []), Region(Block([first, loop, func.ReturnOp()], arg_types=[f32])))])


def body_of(module: ModuleOp) -> Block:
    main = module.body.block.first_op
    assert isinstance(main, func.FuncOp)
    return main.body.block


def counted_right(op: Operation) -> bool:
    blocks = [block for inner in op.walk() for region in inner.regions for block in region.blocks]
    return all(kinds_in(block) == Counter(map(type, block.ops)) for block in blocks) and op_count(op) == len(list(op.walk()))


def test_ops_are_counted_as_they_come_and_go() -> None:
    module = a_module()
    body = body_of(module)
    first, loop, last = body.ops
    assert counted_right(module) and len(body.ops) == 3
    more = [number() for _ in range(4)]
    body.insert_op_before(more[0], first)
    body.insert_op_after(more[1], loop)
    body.insert_ops_before(more[2:], last)
    assert counted_right(module) and kinds_in(body)[arith.ConstantOp] == 5
    assert counted_right(module.clone())
    for op in more:
        op.detach()
        op.erase()
    assert counted_right(module)
    body.erase_op(loop)
    assert counted_right(module) and scf.ForOp not in kinds_in(body)
    second = body.split_before(last)
    assert kinds_in(body) == {arith.ConstantOp: 1} and kinds_in(second) == {func.ReturnOp: 1}


def test_ops_are_found_where_they_are() -> None:
    module = a_module()
    for kinds in ((arith.ConstantOp,), (scf.ForOp,), (ModuleOp, scf.YieldOp), (Operation,), (arith.AddiOp,)):
        found = [op for op in module.walk() if isinstance(op, kinds)]
        assert list(all_of(module, *kinds)) == found
        assert contains(module, *kinds) == bool(found)
    body = body_of(module)
    assert ops_of(body, arith.ConstantOp) == [body.first_op] and ops_of(body, scf.YieldOp) == []
    assert holds_any(body, (scf.YieldOp, scf.ForOp)) and not holds_any(body, (scf.YieldOp,))


def test_ops_with_regions_are_those_of_the_block() -> None:
    module = a_module()
    assert [op.name for op in with_regions(module.body.block)] == ["func.func"]
    assert [op.name for op in with_regions(body_of(module))] == ["scf.for"]
    assert with_regions(Block()) == with_regions(Block([number()])) == []


def test_neighbours_and_types_are_set_by_their_old_names_too() -> None:
    block = Block(arg_types=[i64])
    value: Any = block.args[0]
    value._type = f32
    assert value.type == f32 and value.owner is value.block is block
    first, second = (number() for _ in range(2))
    op: Any = first
    op._next_op = second
    assert first.next_op is second and second.next_op is None
