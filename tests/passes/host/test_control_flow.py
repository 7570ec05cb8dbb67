"""Loops and branches of the host program: double-buffered states, sequence elements, on every target."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from dlc.arrays import TensorInfo
from dlc.compiler import Program, compile
from dlc.dialects import host
from dlc.dialects.registry import make_context
from dlc.errors import DlcError, ModelError
from dlc.instrument.verify import verify
from dlc.ir import ModuleOp, parse_module, print_module
from dlc.options import Options
from dlc.passes.host.bufferize_host import BufferizeHostPass
from dlc.passes.host.plan_arena import PlanArenaPass
from dlc.runtime.cpu.artifact import Artifact
from dlc.runtime.program.bounds import BoundsChecks
from dlc.runtime.program.host_program import (
    Branch,
    CarriedSlot,
    Fail,
    HostArray,
    HostProgram,
    Instruction,
    KernelSignature,
    Launch,
    Loop,
    LoopSlot,
    PrintArrays,
    While,
)
from dlc.runtime.saving.header.instructions import from_json, to_json
from dlc.weights import WeightStore
from tests.targets import TARGETS

V, R = "tensor<3xf32>", "tensor<11x3xf32>"

# h, m ← m, h + x: the states are swapped.
SWAPPED_STATES = f"""
func.func @main(%h: {V}, %m: {V}, %xs: tensor<11x3xf32>) -> ({V}, {V}) {{
  %0, %1 = dl.scan %h, %m, %xs {{states = 2 : i64, length = array<i64: 11>}} : ({V}, {V}, tensor<11x3xf32>) -> ({V}, {V}) {{
  ^bb0(%a: {V}, %b: {V}, %x: {V}):
    %2 = dl.add %a, %x : ({V}, {V}) -> {V}
    dl.yield %b, %2 : {V}, {V}
  }}
  func.return %0, %1 : {V}, {V}
}}
"""
# States that stay, that are the sequence element, that are captured, and a duplicate; the results are in another order.
PRESERVED_STATES = f"""
func.func @main(%h: {V}, %m: {V}, %xs: tensor<11x3xf32>) -> (tensor<11x3xf32>, {V}, {V}, {V}, {V}, {V}) {{
  %0, %1, %2, %3, %4, %5 = dl.scan %h, %h, %h, %h, %h, %xs {{states = 5 : i64, length = array<i64: 11>}} : ({V}, {V}, {V}, {V}, {V}, tensor<11x3xf32>) -> ({V}, {V}, {V}, {V}, {V}, tensor<11x3xf32>) {{
  ^bb0(%a: {V}, %b: {V}, %c: {V}, %d: {V}, %e: {V}, %x: {V}):
    %6 = dl.add %d, %x : ({V}, {V}) -> {V}
    %7 = dl.mul %6, %b : ({V}, {V}) -> {V}
    dl.yield %a, %x, %m, %7, %7, %7 : {V}, {V}, {V}, {V}, {V}, {V}
  }}
  func.return %5, %4, %3, %2, %1, %0 : tensor<11x3xf32>, {V}, {V}, {V}, {V}, {V}
}}
"""
# Doubles x while its sum is below 100; in each iteration a scan adds the rows of xs, or subtracts them if the first is
# negative.
NESTED = f"""
func.func @main(%x: {V}, %xs: tensor<9x3xf32>) -> ({V}, tensor<i64>) {{
  %limit = dl.constant {{value = dense<1.0e2> : tensor<f32>}} : () -> tensor<f32>
  %zero = dl.constant {{value = dense<0.0> : tensor<f32>}} : () -> tensor<f32>
  %none = dl.constant {{value = dense<0> : tensor<i64>}} : () -> tensor<i64>
  %one = dl.constant {{value = dense<1> : tensor<i64>}} : () -> tensor<i64>
  %s = dl.reduce_sum %x {{axes = array<i64: 0>, keepdims = false}} : ({V}) -> tensor<f32>
  %go = dl.less %s, %limit : (tensor<f32>, tensor<f32>) -> tensor<i1>
  %r, %n = dl.while %go, %x, %none : (tensor<i1>, {V}, tensor<i64>) -> ({V}, tensor<i64>) {{
  ^bb0(%a: {V}, %k: tensor<i64>):
    %t = dl.scan %a, %xs {{states = 1 : i64, length = array<i64: 9>}} : ({V}, tensor<9x3xf32>) -> ({V}) {{
    ^bb0(%b: {V}, %row: {V}):
      %first = dl.reduce_sum %row {{axes = array<i64: 0>, keepdims = false}} : ({V}) -> tensor<f32>
      %c = dl.less %first, %zero : (tensor<f32>, tensor<f32>) -> tensor<i1>
      %q = dl.if %c : (tensor<i1>) -> ({V}) {{
        %u = dl.sub %b, %row : ({V}, {V}) -> {V}
        dl.yield %u : {V}
      }} {{
        %u = dl.add %b, %row : ({V}, {V}) -> {V}
        dl.yield %u : {V}
      }}
      dl.yield %q : {V}
    }}
    %d = dl.add %t, %a : ({V}, {V}) -> {V}
    %k2 = dl.add %k, %one : (tensor<i64>, tensor<i64>) -> tensor<i64>
    %s2 = dl.reduce_sum %d {{axes = array<i64: 0>, keepdims = false}} : ({V}) -> tensor<f32>
    %again = dl.less %s2, %limit : (tensor<f32>, tensor<f32>) -> tensor<i1>
    dl.yield %again, %d, %k2 : tensor<i1>, {V}, tensor<i64>
  }}
  func.return %r, %n : {V}, tensor<i64>
}}
"""
# Replaces row k of a table by x, and adds to row 1 of another one, whose previous value is a state too. The first table is two
# states, and the rows of the second are summed after the next one is computed.
UPDATED_ROWS = f"""
func.func @main(%t: {R}, %k: tensor<i64>, %h: {V}, %xs: {R}) -> ({R}, {R}, {R}, {R}, {V}) {{
  %one = dl.constant {{value = dense<1> : tensor<i64>}} : () -> tensor<i64>
  %0, %1, %2, %3, %4, %5 = dl.scan %t, %t, %t, %t, %h, %k, %xs {{states = 6 : i64, length = array<i64: 11>}} : ({R}, {R}, {R}, {R}, {V}, tensor<i64>, {R}) -> ({R}, {R}, {R}, {R}, {V}, tensor<i64>) {{
  ^bb0(%a: {R}, %twin: {R}, %b: {R}, %before: {R}, %sum: {V}, %i: tensor<i64>, %x: {V}):
    %6 = dl.scatter_rows %a, %i, %x {{mode = "none"}} : ({R}, tensor<i64>, {V}) -> {R}
    %7 = dl.reduce_sum %twin {{axes = array<i64: 0>, keepdims = false}} : ({R}) -> {V}
    %8 = dl.scatter_rows %b, %one, %x {{mode = "add"}} : ({R}, tensor<i64>, {V}) -> {R}
    %9 = dl.add %i, %one : (tensor<i64>, tensor<i64>) -> tensor<i64>
    %10 = dl.add %sum, %7 : ({V}, {V}) -> {V}
    dl.yield %6, %6, %8, %b, %10, %9 : {R}, {R}, {R}, {R}, {V}, tensor<i64>
  }}
  func.return %0, %1, %2, %3, %4 : {R}, {R}, {R}, {R}, {V}
}}
"""
# A failing branch fails only if it is taken.
FAILS = f"""
func.func @main(%c: tensor<i1>, %x: {V}) -> ({V}) {{
  %0 = dl.if %c : (tensor<i1>) -> ({V}) {{
    %1 = dl.neg %x : ({V}) -> {V}
    dl.yield %1 : {V}
  }} {{
    dl.fail "there is no such branch"
  }}
  func.return %0 : {V}
}}
"""

H, M = np.float32([1, 2, 3]), np.float32([-1, 0.5, 2])
XS = np.random.default_rng(0).integers(-3, 4, (11, 3)).astype(np.float32)


def parsed(text: str) -> ModuleOp:
    module = parse_module(make_context(), text)
    verify(module)
    return module


def run(text: str, target: str, arrays: Sequence[Any]) -> list[np.ndarray]:
    model = compile(Program(parsed(text), WeightStore()), target, Options(num_threads=2, workers=1, cache=False))
    first = [np.array(a) for a in model.run_unchecked(arrays)]
    for a, b in zip(first, model.run_unchecked(arrays), strict=True):
        np.testing.assert_array_equal(a, np.asarray(b))
    return first


@pytest.mark.parametrize("target", TARGETS)
def test_swapped_states(target: str) -> None:
    a, b = H, M
    for x in XS:
        a, b = b, a + x
    for got, expected in zip(run(SWAPPED_STATES, target, [H, M, XS]), (a, b), strict=True):
        np.testing.assert_array_equal(got, expected)


def consecutive_loops(count: int, add: str) -> str:
    """Loops that add the rows of xs to h, `count` times."""
    scans = [
        f"""
  %{k + 1} = dl.scan %{k}, %xs {{states = 1 : i64, length = array<i64: 11>}} : ({V}, {R}) -> ({V}) {{
  ^bb0(%a{k}: {V}, %x{k}: {V}):
    %y{k} = {add.format(f"%a{k}, %x{k}")} : ({V}, {V}) -> {V}
    dl.yield %y{k} : {V}
  }}"""
        for k in range(count)
    ]
    return f"func.func @main(%0: {V}, %xs: {R}) -> ({V}) {{{''.join(scans)}\n  func.return %{count} : {V}\n}}"


@pytest.mark.parametrize("target", TARGETS)
def test_consecutive_loops(target: str) -> None:
    (got,) = run(consecutive_loops(6, "dl.add {}"), target, [H, XS])
    np.testing.assert_array_equal(got, H + 6 * XS.sum(0))


def test_consecutive_loops_share_memory() -> None:
    def offsets(count: int) -> set[int]:
        module = parse_module(make_context(), consecutive_loops(count, "dl.dispatch @k({})"))
        for step in (BufferizeHostPass(), PlanArenaPass()):
            step.apply(make_context(), module)
        return {op.offset.value.data for op in module.walk() if isinstance(op, host.ArenaOp)}

    assert offsets(9) == offsets(3)


@pytest.mark.parametrize("target", TARGETS)
def test_preserved_states(target: str) -> None:
    d, b, made = H, H, []
    for x in XS:
        d = (d + x) * b
        b = x
        made.append(d)
    for got, expected in zip(run(PRESERVED_STATES, target, [H, M, XS]), (np.stack(made), d, d, M, XS[-1], H), strict=True):
        np.testing.assert_array_equal(got, expected)


@pytest.mark.parametrize("target", TARGETS)
def test_state_updated_in_place(target: str) -> None:
    t = np.arange(33, dtype=np.float32).reshape(11, 3)
    rows, sums, before, total = t.copy(), t.copy(), t.copy(), H
    sums[1], before[1] = t[1] + XS.sum(0), t[1] + XS[:10].sum(0)
    # From row 3 on; rows out of bounds are dropped.
    for k, x in enumerate(XS, 3):
        total = total + rows.sum(0)
        rows[k : k + 1] = x
    expected = rows, rows, sums, before, total
    for got, wanted in zip(run(UPDATED_ROWS, target, [t, np.array(3), H, XS]), expected, strict=True):
        np.testing.assert_array_equal(got, wanted)
    np.testing.assert_array_equal(t, np.arange(33, dtype=np.float32).reshape(11, 3))


@pytest.mark.parametrize("scale", [0.25, 3, 50])
@pytest.mark.parametrize("target", TARGETS)
def test_if_in_scan_in_while(target: str, scale: float) -> None:
    x, xs, turns = H * np.float32(scale), np.abs(XS[:9]) * np.tile([[1], [-1], [1]], (3, 1)), 0
    xs = xs.astype(np.float32)
    a = x
    while a.sum() < 100:
        t = a
        for row in xs:
            t = t - row if row.sum() < 0 else t + row
        a, turns = t + a, turns + 1
    got, n = run(NESTED, target, [x, xs])
    np.testing.assert_allclose(got, a, rtol=1e-6)
    assert n == turns


@pytest.mark.parametrize("target", TARGETS)
def test_failing_branch(target: str) -> None:
    model = compile(Program(parsed(FAILS), WeightStore()), target, Options(num_threads=1, workers=1, cache=False))
    for _ in range(2):
        np.testing.assert_array_equal(np.asarray(model.run_unchecked([np.array(True), H])[0]), -H)
        with pytest.raises(DlcError, match="there is no such branch"):
            model.run_unchecked([np.array(False), H])


def test_planned_loops_round_trip() -> None:
    text = """
func.func @main(%h: tensor<4xf32>, %xs: tensor<9x4xf32>, %c: tensor<i1>) -> (tensor<4xf32>, tensor<9x4xf32>) {
  %0, %1 = dl.scan %h, %xs {states = 1 : i64, length = array<i64: 9>} : (tensor<4xf32>, tensor<9x4xf32>) -> (tensor<4xf32>, tensor<9x4xf32>) {
  ^bb0(%a: tensor<4xf32>, %x: tensor<4xf32>):
    %2 = dl.if %c : (tensor<i1>) -> (tensor<4xf32>) {
      %3 = dl.dispatch @k(%a, %x) : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
      dl.yield %3 : tensor<4xf32>
    } {
      dl.yield %x : tensor<4xf32>
    }
    dl.yield %2, %a : tensor<4xf32>, tensor<4xf32>
  }
  func.return %0, %1 : tensor<4xf32>, tensor<9x4xf32>
}
"""
    module = parse_module(make_context(), text)
    for step in (BufferizeHostPass(), PlanArenaPass()):
        step.apply(make_context(), module)
    (loop,) = (op for op in module.walk() if isinstance(op, host.LoopOp))
    # The state is double-buffered; the sequences advance.
    assert (loop.count.value.data, loop.carried.value.data, len(loop.arguments)) == (9, 3, 5)
    assert {op.offset.value.data for op in module.walk() if isinstance(op, host.ArenaOp)} == {0, 64}
    again = parse_module(make_context(), print_module(module))
    assert print_module(again) == print_module(module)


INFO = TensorInfo("x", (10, 4), np.dtype(np.float32))
STEP = Launch("k", ((3, 0), (4, 0)), (16, 16))
SWAPPING_LOOP = Loop(10, (CarriedSlot(3, (1, 0), (5, 0)), CarriedSlot(5, (1, 16), (3, 0))), (LoopSlot(4, (2, 0), 16),), (STEP,))


def program(*instructions: Instruction, loop_slots: int = 3, arena: int = 32) -> HostProgram:
    return HostProgram((INFO,), (), (), instructions, arena, loop_slots=loop_slots)


def test_instructions_round_trip() -> None:
    instructions = (
        SWAPPING_LOOP,
        While((1, 0), (1, 16), (CarriedSlot(3, (1, 0), (1, 0)),), (STEP,)),
        Launch(None, ((1, 0), (2, 0)), (4, 4), (4,)),
        Branch((1, 0), (), (Fail("index {} of {}", ((1, 0), (1, 8))),)),
        PrintArrays(("x is ", ".2f", ""), (HostArray((1, 0), (2, 3), np.dtype(ml_dtypes.bfloat16)),)),
    )
    assert from_json(json.loads(json.dumps(to_json(instructions))), {"k": KernelSignature(0, (16, 16))}) == instructions


def test_valid_loop_is_accepted() -> None:
    assert BoundsChecks.of(program(SWAPPING_LOOP)) == BoundsChecks((), ())


@pytest.mark.parametrize("kind", [Loop, While])
def test_many_consecutive_loops_are_accepted(kind: type[Loop | While]) -> None:
    loops: list[Instruction] = []
    before = (1, 0)
    # Each loop starts at the end of the previous one.
    for slot in range(2, 900, 2):
        carried = (CarriedSlot(slot, before, (slot + 1, 0)), CarriedSlot(slot + 1, (1, 16), (slot, 0)))
        body = (Launch("k", ((slot, 0), (slot + 1, 0)), (16, 16)),)
        loops.append(Loop(2, carried, (), body) if kind is Loop else While((1, 0), (1, 0), carried, body))
        before = slot, 0
    BoundsChecks.of(HostProgram((), (), (), tuple(loops), 32, loop_slots=898))


INVALID: dict[str, Callable[[], HostProgram]] = {
    "a number beyond its buffer": lambda: program(Fail("{}", ((1, 25),))),
    "an array beyond its buffer": lambda: program(PrintArrays(("", "", ""), (HostArray((1, 4), (8,), np.dtype(np.float32)),))),
    "a step beyond the sequence": lambda: program(Loop(11, SWAPPING_LOOP.carried, SWAPPING_LOOP.elements, SWAPPING_LOOP.body)),
    "a larger step": lambda: program(Loop(10, SWAPPING_LOOP.carried, (LoopSlot(4, (2, 0), 17),), SWAPPING_LOOP.body)),
    "a state that moves on": lambda: program(Loop(2, (CarriedSlot(3, (1, 0), (3, 8)),), SWAPPING_LOOP.elements, SWAPPING_LOOP.body)),
    "a small arena": lambda: program(SWAPPING_LOOP, arena=16),
    "a slot that nothing sets": lambda: program(STEP),
    "a loop that sets the arena": lambda: program(Loop(2, (CarriedSlot(1, (1, 0), (1, 0)),), SWAPPING_LOOP.elements, ())),
    "a slot beyond the last": lambda: program(SWAPPING_LOOP, loop_slots=2),
    "a condition beyond its buffer": lambda: program(While((1, 32), (1, 0), (), ())),
    "a slot that two loops set": lambda: program(
        Loop(10, SWAPPING_LOOP.carried, SWAPPING_LOOP.elements, (*SWAPPING_LOOP.body, Loop(2, (), (LoopSlot(4, (2, 144), 0),), ())))
    ),
    "an element after the last": lambda: program(SWAPPING_LOOP, STEP),
    "a state that begins where an element was": lambda: program(
        Loop(10, (CarriedSlot(3, (4, 0), (1, 0)),), (LoopSlot(4, (2, 0), 16),), (Launch("k", ((3, 0),), (16,)),))
    ),
    "a slot that one branch sets": lambda: program(
        Branch((1, 0), (Loop(1, (CarriedSlot(3, (1, 0), (1, 0)),), (), ()),), ()), Launch("k", ((3, 0),), (16,))
    ),
    "a state of a loop that never runs": lambda: program(
        Loop(-1, (CarriedSlot(3, (1, 32), (1, 0)),), (), ()), Loop(1, (CarriedSlot(4, (3, 0), (1, 0)),), (), (STEP,)), loop_slots=2
    ),
    "a condition that is nothing": lambda: program(While((0, 32), (1, 0), (), ())),
}  # fmt: skip


@pytest.mark.parametrize("name", INVALID)
def test_invalid_loops_are_rejected(name: str) -> None:
    with pytest.raises(ModelError):
        BoundsChecks.of(INVALID[name]())


def test_unbounded_nesting_is_rejected() -> None:
    written: list[Any] = []
    for _ in range(100):
        written = [{"if": [1, 0], "then": written, "else": []}]
    with pytest.raises(ValueError, match="bodies are nested"):
        from_json(written, {})
    with pytest.raises(ModelError, match="too complex"):
        BoundsChecks.of(_rotations(depth=20, states=100))


def _rotations(depth: int, states: int) -> HostProgram:
    """Nested loops, each of which rotates its states."""
    loop: tuple[Instruction, ...] = ()
    for k in range(depth):
        slots = [3 + states * k + j for j in range(states)]
        carried = tuple(CarriedSlot(slot, (1, j), (slots[(j + 1) % states], 0)) for j, slot in enumerate(slots))
        loop = (Loop(2, carried, (), loop),)
    return program(*loop, loop_slots=states * depth, arena=states)


def test_nested_rotations_are_accepted() -> None:
    assert BoundsChecks.of(_rotations(depth=6, states=8)) == BoundsChecks((), ())


def test_unspecified_constants_are_not_copied() -> None:
    text = f"""
    func.func @main(%go: tensor<i1>, %x: {V}, %xs: {R}, %k: tensor<i64>) -> ({V}, {R}) {{
      %any = dl.constant {{value = dense<0.0> : tensor<f32>, unspecified}} : () -> tensor<f32>
      %y = dl.if %go : (tensor<i1>) -> ({V}) {{
        %0 = dl.neg %x : ({V}) -> {V}
        dl.yield %0 : {V}
      }} {{
        %1 = dl.broadcast_to %any {{shape = array<i64: 3>}} : (tensor<f32>) -> {V}
        dl.yield %1 : {V}
      }}
      %empty = dl.broadcast_to %any {{shape = array<i64: 11, 3>}} : (tensor<f32>) -> {R}
      %rows, %last = dl.while %go, %empty, %k : (tensor<i1>, {R}, tensor<i64>) -> ({R}, tensor<i64>) {{
      ^bb0(%r: {R}, %n: tensor<i64>):
        %one = dl.constant {{value = dense<1> : tensor<i64>}} : () -> tensor<i64>
        %next = dl.add %n, %one : (tensor<i64>, tensor<i64>) -> tensor<i64>
        %end = dl.constant {{value = dense<11> : tensor<i64>}} : () -> tensor<i64>
        %more = dl.less %next, %end : (tensor<i64>, tensor<i64>) -> tensor<i1>
        %new = dl.scatter_rows %r, %n, %x {{mode = "none", clamped = true, in_bounds = true}} : ({R}, tensor<i64>, {V}) -> {R}
        dl.yield %more, %new, %next : tensor<i1>, {R}, tensor<i64>
      }}
      func.return %y, %rows : {V}, {R}
    }}
    """
    x = np.arange(3, dtype=np.float32)
    y, rows = run(text, "cpu", [np.asarray(True), x, XS, np.asarray(0)])
    np.testing.assert_array_equal(y, -x)
    np.testing.assert_array_equal(rows, np.tile(x, (11, 1)))
    artifact = compile(Program(parsed(text), WeightStore()), "cpu", Options(cache=False)).artifact
    assert isinstance(artifact, Artifact) and all(not w.shape for w in artifact.host.weights)
