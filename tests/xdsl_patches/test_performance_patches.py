"""The performance patches of xDSL do not change its behaviour: one script prints the same with and without them."""

from __future__ import annotations

import gc
import subprocess
import sys
import weakref

import pytest

from dlc.ir import IndexType, ModuleOp, NoneAttr, OpOwner, arith, bf16, f16, f32, f64, func, release_op

OBSERVE = """
import sys
from xdsl.dialects import arith, scf, test
from xdsl.dialects.builtin import (
    ArrayAttr, DenseArrayBase, FloatAttr, IntAttr, IntegerAttr, IntegerType, MemRefType, ModuleOp, NameLoc, NoneAttr,
    StridedLayoutAttr, StringAttr, SymbolRefAttr, TensorType, f32, i32, i64,
)
from xdsl.ir import Attribute, Block, BlockArgument, Operation, OpResult, Region, SSAValue
from xdsl.ir.affine import AffineExpr, AffineMap
from xdsl.rewriter import InsertPoint, Rewriter
from xdsl.builder import ImplicitBuilder
from xdsl.traits import IsolatedFromAbove, IsTerminator, SymbolTable

if sys.argv[1] == "quicker":
    before = Operation.walk
    from dlc.xdsl_patches import patch_performance
    patch_performance()
    assert Operation.walk is not before

def refused(what, *arguments):
    try:
        what(*arguments)
    except Exception as error:
        return type(error).__name__, str(error).splitlines()[0]
    return "taken"

def number(value):
    return arith.ConstantOp(IntegerAttr(value, i32))

# Ops, operands and results by name, before and after variadic ones; defaults of properties.
a, b = number(1), number(2)
total, call = arith.AddiOp(a, b), test.TestOp([a.result, b.result], [i32, i64], properties={"p": StringAttr("q")})
print(total.lhs is a.result, total.rhs is b.result, total.result.index, call.res[1].type, total.properties, a.location)
loop = scf.ForOp(a, b, a, [b.result], Region(Block([scf.YieldOp(b)], arg_types=[i32, i32])))
print([o.owner.name for o in (loop.lb, loop.ub, loop.step)], len(loop.iter_args), loop.res[0].type, loop.parent, loop.regions[0].parent is loop)
wide = arith.AddUIExtendedOp(a, b)
print([r.index for r in (wide.sum, wide.overflow)], wide.sum.type, wide.overflow.type)
wide.erase()
print([(use.operation.name, use.index) for use in a.result.uses], [(u.operation.name, u.index) for u in b.result.uses])

# Replacing an operand affects its op only; results cannot be replaced.
total.operands[1] = a.result
print([v.owner is a for v in total.operands], [v.owner is a for v in call.operands])
print([(use.operation.name, use.index) for use in a.result.uses], [(u.operation.name, u.index) for u in b.result.uses])
total.operands[1] = b.result
print(total.operands == total.operands, total.operands == call.operands, len(total.operands), total.operands[:1].types)
print(refused(total.operands.__getitem__, 2) == refused(call.operands.__getitem__, 2))

# Blocks accept detached ops, once, and no op that contains them.
inner = loop.body.block
block = Block([a, b, total, call, loop])
print([op.name for op in block.ops], [op.parent is block for op in block.ops])
print(refused(block.add_op, a), refused(inner.add_op, loop), refused(Block().add_op, inner.first_op))
module = ModuleOp(Region(block))

# Walks in each order; a yielded op may be removed.
for order in ({}, {"reverse": True}, {"region_first": True}, {"reverse": True, "region_first": True}):
    print([op.name for op in module.walk(**order)])
copy = module.clone()
for op in copy.walk():
    if isinstance(op, test.TestOp):
        op.detach(); op.erase()
for op in copy.body.block.ops:
    if isinstance(op, arith.ConstantOp):
        Rewriter.insert_op(number(7), InsertPoint.after(op))
print(copy, len(copy.body.block.ops), [op.name for op in reversed(copy.body.block.ops)])

# Clones: of ops that read later values, of loops with their name hints, of one op with other operands, without operands.
late = number(5)
early = test.TestOp([late.result, a.result], [i32], regions=[Region(Block([test.TestOp([late.result])], arg_types=[i64]))])
late.result.name_hint, early.regions[0].block.args[0].name_hint = "late", "given"
around = test.TestOp(regions=[Region(Block([early, late]))])
print(around.clone(), around.clone(clone_name_hints=False), early.clone(clone_operands=False))
known = {a.result: b.result}
print(early.clone(known).operands[1] is b.result, total.clone(known), len(known), total.clone_without_regions(), loop.clone(known))
around.erase()

# Values: names, and replacement.
a.result.name_hint, total.result.name_hint = "first_12", "sum"
print(a.result.name_hint, [refused(SSAValue.extract_valid_name, n) for n in ("a b", "1", "x_1", None)])
fresh = number(3)
Rewriter.insert_op(fresh, InsertPoint.before(total))
a.result.replace_all_uses_with(fresh.result)
print(module, a.result.first_use, fresh.result.name_hint, [(u.operation.name, u.index) for u in fresh.result.uses])
total.operands[0] = b.result
fresh.result.replace_all_uses_with(fresh.result)
print([(u.operation.name, u.index) for u in fresh.result.uses], [(u.operation.name, u.index) for u in b.result.uses])
print(refused(fresh.erase), refused(a.detach), a.parent)

# An implicit builder inserts the ops of its `with` block.
with ImplicitBuilder(made := Block()):
    x = number(4)
    arith.AddiOp(x, x)
print([op.name for op in made.ops])

# Attributes: equal ones are equal keys; sizes and values.
one, same, other = (TensorType(f32, s) for s in ([2, 3], [2, 3], [3, 2]))
print(one == same, hash(one) == hash(same), one == other, {one: 1}.get(same), {one: 1}.get(other), one.get_shape(), other.get_shape())
print(MemRefType(f32, [2]).get_shape(), TensorType(one.element_type, [-1]).get_shape(), isinstance(one, Attribute), isinstance(one, Operation))
ints = [DenseArrayBase.from_list(i64, v) for v in ([1, -2], [1, -2], [])]
print([d.get_values() for d in ints for _ in range(2)], hash(ints[0]) == hash(ints[1]), ints[0] == ints[2])
print(issubclass(arith.AddiOp, Operation), isinstance(total, Operation), isinstance(a.result, SSAValue), isinstance(a.result, BlockArgument),
      issubclass(OpResult, SSAValue), isinstance(3, Attribute))
kept = [ArrayAttr([IntAttr(2)]), f32, StridedLayoutAttr([1]), NoneAttr()]
print([refused(MemRefType.new, [*kept[:k], StringAttr("no"), *kept[k + 1 :]]) for k in range(4)], MemRefType.new(kept))
print(refused(FloatAttr, 1.0, i32), refused(FloatAttr, 1.0, f32), refused(IntegerAttr, 1, f32), refused(ArrayAttr, [i32]))
print(a == number(1), a == a, len({a, b, a}), a.result == b.result)

# References and locations: of strings and attributes, of nested names; invalid locations are refused each time.
print([str(SymbolRefAttr(*given)) for given in (("a",), (StringAttr("a"),), ("a", ["b", StringAttr("c")]), ("a", ArrayAttr([StringAttr("b")])))])
print(SymbolRefAttr("a") == SymbolRefAttr("a", []), SymbolRefAttr("a").string_value(), hash(SymbolRefAttr("a")) == hash(SymbolRefAttr(StringAttr("a"))))
print([refused(SymbolRefAttr, *given) for given in (("a", [i32]), (i32,), ("a", i32)) for _ in range(2)])
print(NameLoc(StringAttr("n"), NoneAttr()), [refused(NameLoc, *given) for given in ((StringAttr("n"), i32), ("n", NoneAttr()), (StringAttr("n"),)) for _ in range(2)])
print([refused(IntegerAttr, 300, kind) for kind in (IntegerType(8), i32) for _ in range(2)], IntegerAttr(1, i32) == IntegerAttr(1, i64))

# Affine maps: equal ones are equal keys; maps that do not compose are refused each time.
x, y = AffineExpr.dimension(0), AffineExpr.dimension(1)
swap, shift, whole = AffineMap(2, 0, (y, x)), AffineMap(2, 0, (x + 1, y * 2)), AffineMap.identity(2)
print(x == AffineExpr.dimension(0), hash(x + 1) == hash(AffineExpr.dimension(0) + 1), x + 1 == x + 2, {swap: 1}.get(AffineMap(2, 0, (y, x))), whole, AffineMap.identity(1, 1))
print([a.compose(b) for a in (swap, shift, whole) for b in (swap, shift, whole) for _ in range(2)], [refused(AffineMap.identity(3).compose, swap) for _ in range(2)])

# Valid and invalid ops, each verified again, and after a change.
def wrong():
    right, bad = arith.AddiOp(a, b), arith.AddiOp.create(operands=[a.result, b.result], result_types=[i64])
    few = arith.AddiOp.create(operands=[a.result], result_types=[i32])
    more = arith.AddiOp.create(operands=[a.result], result_types=[i32, i32], properties=dict(right.properties))
    renamed = arith.AddiOp.create(operands=[a.result, b.result], result_types=[i32])
    renamed.properties = {"z": right.properties["overflowFlags"]}
    counted = scf.ForOp(a, b, a, [], Region(Block([scf.YieldOp()], arg_types=[i32])))
    empty = scf.ForOp.create(operands=[a.result, b.result, a.result], regions=[Region()])
    unknown = arith.AddiOp.create(operands=[a.result, b.result], result_types=[i32], properties={"z": i32})
    for op in (right, right, bad, few, more, renamed, unknown, counted, counted, empty):
        yield refused(op.verify)
    right.properties["overflowFlags"] = StringAttr("x")
    yield refused(right.verify)
    for op in (right, bad, few, more, renamed, unknown, counted, empty):
        op.erase()
print(list(wrong()), list(wrong()), refused(module.verify))

# Isolated ops use their own values only; values of ops in their regions are left to dominance.
outer, own = number(8), number(9)
inside = test.TestOp([own.result], regions=[Region(Block([test.TestTermOp([own.result])]))])
print([refused(op.verify) for op in (ModuleOp([own, inside]), ModuleOp([test.TestOp([outer.result])]), ModuleOp([test.TestOp(regions=[Region(Block([test.TestTermOp([outer.result])]))])]))])
print([test.TestOp.has_trait(trait) for trait in (IsTerminator, IsTerminator(), IsolatedFromAbove)], [scf.YieldOp.has_trait(IsTerminator()) for _ in range(2)], ModuleOp.get_trait(SymbolTable) is not None)
"""


def observe(how: str) -> str:
    done = subprocess.run([sys.executable, "-c", OBSERVE, how], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.skipif(sys.flags.optimize > 0, reason="python -O takes checks of xDSL away, which are among what is seen")
def test_patched_and_original_behaviour_agree() -> None:
    assert observe("quicker") == observe("as it is")


def a_module() -> ModuleOp:
    kernel = func.FuncOp("f", ([f32], [f32]))
    block = kernel.body.block
    total = arith.AddfOp(block.args[0], block.args[0])
    product = arith.MulfOp(total, total)
    block.add_ops([total, product, func.ReturnOp(product)])
    return ModuleOp([kernel])


def test_hashes_of_attributes_without_parameters_differ() -> None:
    kinds = (f16, bf16, f32, f64, IndexType(), NoneAttr())
    assert len({hash(kind) for kind in kinds}) == len(kinds)


def test_released_ops_are_freed_immediately() -> None:
    gc.disable()
    try:
        module, other = a_module(), a_module()
        ops = [weakref.ref(op) for op in module.walk()]
        release_op(module)
        del module
        assert all(op() is None for op in ops)
        kept = [OpOwner(other)] * 2
        ops = [weakref.ref(op) for op in other.walk()]
        del other, kept[0]
        assert all(op() is not None for op in ops)
        kept.clear()
        assert all(op() is None for op in ops)
    finally:
        gc.enable()
