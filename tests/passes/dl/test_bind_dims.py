"""`bind-dims`: replaces symbolic dimensions by static sizes."""

from __future__ import annotations

import pytest

from dlc.dialects import dl
from dlc.dialects.dl.base import shape_of, tensor_type
from dlc.dialects.dl.build import DlBuilder
from dlc.errors import ShapeError
from dlc.ir import Block, Context, FunctionType, ModuleOp, Region, f32, func
from dlc.passes.dl.programs.bind_dims import BindDimsPass, bind_dims
from dlc.shapes.dims import Dim

N = Dim.symbol("n")


def module() -> ModuleOp:
    types = [tensor_type((N, 4), f32), tensor_type((3, 4), f32)]
    block = Block(arg_types=types)
    build = DlBuilder(block)
    twice = build(dl.ConcatOp, block.args[0], block.args[0], axis=0)
    flat = build(dl.ReshapeOp, twice, shape=(N * 8,))
    total = build(dl.AddOp, block.args[0], block.args[1])
    block.add_op(func.ReturnOp(flat, total))
    return ModuleOp([func.FuncOp("main", FunctionType.from_lists(types, [flat.type, total.type]), Region(block))])


def test_types_and_properties_are_bound() -> None:
    m = module()
    BindDimsPass(("n=3",)).apply(Context(), m)
    m.verify()
    assert "dims" not in str(m)
    main = next(iter(m.ops))
    assert isinstance(main, func.FuncOp)
    assert [shape_of(t) for t in main.function_type.outputs] == [(24,), (3, 4)]


def test_other_symbols_stay() -> None:
    m = module()
    bind_dims(m, {"k": 2})
    m.verify()
    assert 'dims<"n", 4>' in str(m)


def test_invalid_sizes_are_reported() -> None:
    with pytest.raises(ShapeError, match="n = 2"):
        bind_dims(module(), {"n": 2})
