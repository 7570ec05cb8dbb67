"""The host program: weight expressions, bufferization, arena planning."""

import numpy as np
import pytest

from dlc.backends.reference import evaluate
from dlc.dialects import host
from dlc.dialects.entry import entry_of, inputs_of, outputs_of
from dlc.dialects.registry import make_context
from dlc.errors import UnsupportedError
from dlc.ir import ModuleOp, memref, parse_module, print_module
from dlc.passes.host.arena import Lifetime, assign_offsets, assign_slots
from dlc.passes.host.bufferize_host import BufferizeHostPass
from dlc.passes.host.evaluate_weight_expressions import evaluate_weight_expressions
from dlc.passes.host.plan_arena import PlanArenaPass
from dlc.weights import WeightStore


def parse(text: str) -> ModuleOp:
    module = parse_module(make_context(), text)
    module.verify()
    return module


def planned(text: str) -> ModuleOp:
    module = parse(text)
    for step in (BufferizeHostPass(), PlanArenaPass()):
        step.apply(make_context(), module)
        module.verify()
    return module


CHAIN = """
func.func @main(%x: tensor<16xf32> {dl.name = "in"}) -> (tensor<4x4xf32> {dl.name = "out"}) {
  %w = dl.weight {symbol = @w, type = tensor<16xf32>} : () -> tensor<16xf32>
  %a = dl.dispatch @k(%x, %w) : (tensor<16xf32>, tensor<16xf32>) -> tensor<16xf32> loc("first")
  %b = dl.dispatch @k(%a, %w) : (tensor<16xf32>, tensor<16xf32>) -> tensor<16xf32>
  %c = dl.dispatch @k(%b, %w) : (tensor<16xf32>, tensor<16xf32>) -> tensor<16xf32>
  %d = dl.dispatch @k(%c, %w) : (tensor<16xf32>, tensor<16xf32>) -> tensor<16xf32>
  %y = dl.reshape %d {shape = array<i64: 4, 4>} : (tensor<16xf32>) -> tensor<4x4xf32>
  func.return %y : tensor<4x4xf32>
}
"""


def test_chain_takes_two_buffers_and_writes_its_output_in_place():
    module = planned(CHAIN)
    main = entry_of(module)
    arenas = [op for op in main.body.block.ops if isinstance(op, host.ArenaOp)]
    assert [op.offset.value.data for op in arenas] == [0, 64, 0]
    launches = [op for op in main.body.block.ops if isinstance(op, host.LaunchOp)]
    last = launches[-1].arguments[-1].owner
    assert isinstance(last, memref.ReinterpretCastOp) and last.source is outputs_of(main)[0]
    assert [a.name_hint for a in inputs_of(main)] == ["x"]
    assert str(launches[0].location) == 'loc("first")'


def test_after_is_an_alias_and_extends_no_lifetime():
    module = planned("""
    func.func @main(%x: tensor<16xf32>) -> tensor<16xf32> {
      %a = dl.dispatch @k(%x) : (tensor<16xf32>) -> tensor<16xf32>
      %b = dl.dispatch @k(%x) : (tensor<16xf32>) -> tensor<16xf32>
      %c = dl.dispatch @k(%b) : (tensor<16xf32>) -> tensor<16xf32>
      %d = dl.add_dependency %a, %c : (tensor<16xf32>, tensor<16xf32>) -> tensor<16xf32>
      %e = dl.dispatch @k(%d) : (tensor<16xf32>) -> tensor<16xf32>
      %y = dl.dispatch @k(%e) : (tensor<16xf32>) -> tensor<16xf32>
      func.return %y : tensor<16xf32>
    }
    """)
    main = entry_of(module)
    a, b, c, e, _ = (op for op in main.body.block.ops if isinstance(op, host.LaunchOp))
    places = [op.arguments[-1].owner.offset.value.data for op in (a, b, c, e)]
    assert e.arguments[0] is a.arguments[-1]
    assert len(set(places)) == 3 and places[3] in places[1:3]


def test_input_and_output_names_are_kept():
    header = print_module(entry_of(planned(CHAIN))).splitlines()[0]
    assert '"in"' in header and '"out"' in header and "host.output" in header
    again = parse(print_module(planned(CHAIN)))
    assert len(outputs_of(entry_of(again))) == 1


def test_outputs_that_no_kernel_writes_are_copied():
    module = planned("""
    func.func @main(%x: tensor<4xf32>) -> (tensor<4xf32>, tensor<4xf32>, tensor<2x2xf32>, tensor<4xf32>) {
      %w = dl.weight {symbol = @w, type = tensor<4xf32>} : () -> tensor<4xf32>
      %a = dl.dispatch @k(%x) : (tensor<4xf32>) -> tensor<4xf32>
      %v = dl.reshape %a {shape = array<i64: 2, 2>} : (tensor<4xf32>) -> tensor<2x2xf32>
      func.return %a, %x, %v, %w : tensor<4xf32>, tensor<4xf32>, tensor<2x2xf32>, tensor<4xf32>
    }
    """)
    main = entry_of(module)
    copies = [op for op in main.body.block.ops if isinstance(op, memref.CopyOp)]
    assert [op.destination for op in copies] == list(outputs_of(main)[1:])
    assert not any(isinstance(op, host.ArenaOp | memref.AllocOp) for op in main.body.block.ops)


def test_use_through_a_reshape_extends_the_lifetime():
    module = planned("""
    func.func @main(%x: tensor<16xf32>) -> tensor<16xf32> {
      %a = dl.dispatch @k(%x) : (tensor<16xf32>) -> tensor<16xf32>
      %v = dl.reshape %a {shape = array<i64: 4, 4>} : (tensor<16xf32>) -> tensor<4x4xf32>
      %b = dl.dispatch @k(%x) : (tensor<16xf32>) -> tensor<16xf32>
      %y = dl.dispatch @m(%b, %v) : (tensor<16xf32>, tensor<4x4xf32>) -> tensor<16xf32>
      func.return %y : tensor<16xf32>
    }
    """)
    arenas = [op.offset.value.data for op in module.walk() if isinstance(op, host.ArenaOp)]
    assert sorted(arenas) == [0, 64]


def negation(name: str, shape: str, dims: str) -> str:
    """A kernel on buffers."""
    iterators = ", ".join(['"parallel"'] * len(dims.split()))
    return f"""
    func.func @{name}(%x: memref<{shape}xf32>, %y: memref<{shape}xf32>) attributes {{kernel}} {{
      linalg.generic {{indexing_maps = [affine_map<({dims}) -> ({dims})>, affine_map<({dims}) -> ({dims})>],
          iterator_types = [{iterators}]}} ins(%x : memref<{shape}xf32>) outs(%y : memref<{shape}xf32>) {{
      ^bb0(%a: f32, %old: f32):
        %n = arith.negf %a : f32
        linalg.yield %n : f32
      }}
      func.return
    }}"""


def test_concat_operands_are_written_in_place():
    module = planned("""
    func.func @main(%x: tensor<1x16xf32>) -> tensor<64xf32> {
      %a = dl.dispatch @k(%x) : (tensor<1x16xf32>) -> tensor<1x16xf32>
      %b = dl.dispatch @m(%a) : (tensor<1x16xf32>) -> tensor<16xf32>
      %v = dl.reshape %b {shape = array<i64: 1, 16>} : (tensor<16xf32>) -> tensor<1x16xf32>
      %c = dl.concat %a, %v, %a, %x {axis = 0 : i64} : (tensor<1x16xf32>, tensor<1x16xf32>, tensor<1x16xf32>, tensor<1x16xf32>) -> tensor<4x16xf32>
      %y = dl.dispatch @n(%c) : (tensor<4x16xf32>) -> tensor<64xf32>
      func.return %y : tensor<64xf32>
    }
    """)
    main = entry_of(module)
    (arena,) = [op for op in main.body.block.ops if isinstance(op, host.ArenaOp)]
    k, m, n = (op for op in main.body.block.ops if isinstance(op, host.LaunchOp))
    # Duplicates, and values that no kernel computes, are copied.
    copies = [op.destination for op in main.body.block.ops if isinstance(op, memref.CopyOp)]
    parts = [k.arguments[-1], m.arguments[-1], *copies]
    assert [(v.owner.source, v.owner.static_offsets.get_values()) for v in parts] == [
        (arena.result, (offset,)) for offset in (0, 16, 32, 48)
    ]
    assert m.arguments[0] is k.arguments[-1] and n.arguments[0] is arena.result


def test_evaluator_finds_pieces_of_concatenations():
    module = planned(f"""
    func.func @main(%x: tensor<2x16xf32>) -> (tensor<4x16xf32>, tensor<16xf32>, tensor<16x2xf32>) {{
      %a = dl.dispatch @n(%x) : (tensor<2x16xf32>) -> tensor<2x16xf32>
      %b = dl.dispatch @n(%a) : (tensor<2x16xf32>) -> tensor<2x16xf32>
      %s = dl.slice %b {{starts = array<i64: 1, 0>, limits = array<i64: 2, 16>, strides = array<i64: 1, 1>}} : (tensor<2x16xf32>) -> tensor<1x16xf32>
      %t = dl.reshape %s {{shape = array<i64: 16>}} : (tensor<1x16xf32>) -> tensor<16xf32>
      %u = dl.reshape %b {{shape = array<i64: 16, 2>}} : (tensor<2x16xf32>) -> tensor<16x2xf32>
      %c = dl.concat %a, %b {{axis = 0 : i64}} : (tensor<2x16xf32>, tensor<2x16xf32>) -> tensor<4x16xf32>
      %k = dl.dispatch @whole(%c) : (tensor<4x16xf32>) -> tensor<4x16xf32>
      %l = dl.dispatch @row(%t) : (tensor<16xf32>) -> tensor<16xf32>
      %m = dl.dispatch @columns(%u) : (tensor<16x2xf32>) -> tensor<16x2xf32>
      func.return %k, %l, %m : tensor<4x16xf32>, tensor<16xf32>, tensor<16x2xf32>
    }}
    builtin.module @kernels {{
      {negation("n", "2x16", "i, j")}
      {negation("whole", "4x16", "i, j")}
      {negation("row", "16", "i")}
      {negation("columns", "16x2", "i, j")}
    }}
    """)
    x = np.arange(32, dtype=np.float32).reshape(2, 16)
    whole, row, columns = evaluate(module, [x], {})
    np.testing.assert_array_equal(whole, np.concatenate([x, -x]))
    np.testing.assert_array_equal(row, -x[1])
    np.testing.assert_array_equal(columns, -x.reshape(16, 2))


def test_contiguous_slices_are_views():
    module = planned("""
    func.func @main(%x: tensor<4x16xf32>) -> (tensor<16xf32>, tensor<4x16xf32>, tensor<1x16xf32>) {
      %a = dl.dispatch @k(%x) : (tensor<4x16xf32>) -> tensor<4x16xf32>
      %s = dl.slice %a {starts = array<i64: 1, 0>, limits = array<i64: 3, 16>, strides = array<i64: 1, 1>} : (tensor<4x16xf32>) -> tensor<2x16xf32>
      %t = dl.slice %s {starts = array<i64: 1, 0>, limits = array<i64: 2, 16>, strides = array<i64: 1, 1>} : (tensor<2x16xf32>) -> tensor<1x16xf32>
      %v = dl.reshape %t {shape = array<i64: 16>} : (tensor<1x16xf32>) -> tensor<16xf32>
      %y = dl.dispatch @m(%v) : (tensor<16xf32>) -> tensor<16xf32>
      func.return %y, %a, %t : tensor<16xf32>, tensor<4x16xf32>, tensor<1x16xf32>
    }
    """)
    main = entry_of(module)
    first, second = [op for op in main.body.block.ops if isinstance(op, host.LaunchOp)]
    part = second.arguments[0].owner
    _, whole, row = outputs_of(main)
    assert first.arguments[-1] is whole
    assert isinstance(part, memref.ReinterpretCastOp) and part.source is whole
    assert part.static_offsets.get_values() == (32,)
    assert [op.destination for op in main.body.block.ops if isinstance(op, memref.CopyOp)] == [row]
    x = np.arange(64, dtype=np.float32).reshape(4, 16)
    whole = parse(print_module(entry_of(module)) + negation("k", "4x16", "a, b") + negation("m", "16", "a"))
    for got, expected in zip(evaluate(whole, [x]), [x[2], -x, -x[2:3]], strict=True):
        np.testing.assert_array_equal(got, expected)


def test_error_names_all_ops_without_kernels():
    module = parse("""
    func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> {
      %c = dl.constant {value = dense<1.0> : tensor<4xf32>} : () -> tensor<4xf32>
      %s = dl.constant {value = dense<2.0> : tensor<4xf32>} : () -> tensor<4xf32> loc("scale")
      func.return %c : tensor<4xf32>
    }
    """)
    with pytest.raises(UnsupportedError, match="scale") as error:
        BufferizeHostPass().apply(make_context(), module)
    assert len(error.value.problems) == 2


def test_weight_expressions_become_weights():
    module = parse("""
    func.func @main(%x: tensor<2x3xf32>) -> (tensor<2x3xf32>, tensor<2xf32>) {
      %w = dl.weight {symbol = @w, type = tensor<3x2xf32>} : () -> tensor<3x2xf32>
      %b = dl.weight {symbol = @b, type = tensor<2xf32>} : () -> tensor<2xf32>
      %t = dl.transpose %w {permutation = array<i64: 1, 0>} : (tensor<3x2xf32>) -> tensor<2x3xf32>
      %s = dl.add %t, %t : (tensor<2x3xf32>, tensor<2x3xf32>) -> tensor<2x3xf32>
      %c = dl.constant {value = dense<[1.0, 2.0]> : tensor<2xf32>} : () -> tensor<2xf32>
      %y = dl.dispatch @k(%x, %s, %c, %b) : (tensor<2x3xf32>, tensor<2x3xf32>, tensor<2xf32>, tensor<2xf32>) -> tensor<2x3xf32>
      func.return %y, %b : tensor<2x3xf32>, tensor<2xf32>
    }
    """)
    store = WeightStore()
    w = np.arange(6, dtype=np.float32).reshape(3, 2)
    assert store.add(w) == "w"
    assert store.add(np.float32([5, 6]), hint="b") == "b"
    result = evaluate_weight_expressions(module, store)
    module.verify()
    weights = {op.symbol.string_value(): op.result.name_hint for op in module.walk() if op.name == "dl.weight"}
    assert set(result) == set(weights) and len(store) == 2
    by_name = {hint: result[name] for name, hint in weights.items()}
    np.testing.assert_array_equal(by_name["s"], 2 * w.T)
    np.testing.assert_array_equal(by_name["c"], [1, 2])
    assert all(a.flags.c_contiguous and a.ctypes.data % 64 == 0 for a in (by_name["s"], by_name["c"]))
    assert [op.name for op in entry_of(module).body.block.ops] == ["dl.weight"] * 3 + ["dl.dispatch", "func.return"]
    assert "w" not in result, "a weight that only expressions read is gone"


def test_the_evaluator_runs_the_planned_program():
    module = planned("""
    func.func @main(%x: tensor<4xui8>) -> (tensor<2x2xui8>, tensor<4xui8>, tensor<2x2xui8>, tensor<4xui8>) {
      %w = dl.weight {symbol = @w, type = tensor<4xui8>} : () -> tensor<4xui8>
      %a = dl.dispatch @k(%w) : (tensor<4xui8>) -> tensor<4xui8>
      %b = dl.dispatch @k(%a) : (tensor<4xui8>) -> tensor<4xui8>
      %v = dl.reshape %b {shape = array<i64: 2, 2>} : (tensor<4xui8>) -> tensor<2x2xui8>
      func.return %v, %x, %v, %w : tensor<2x2xui8>, tensor<4xui8>, tensor<2x2xui8>, tensor<4xui8>
    }
    builtin.module @kernels {
      func.func @k(%x: memref<4xi8>, %y: memref<4xi8>) attributes {kernel} {
        "memref.copy"(%x, %y) : (memref<4xi8>, memref<4xi8>) -> ()
        func.return
      }
    }
    """)
    x, w = np.uint8([1, 2, 3, 255]), np.uint8([5, 6, 7, 200])
    results = evaluate(module, [x], {"w": w})
    for got, want in zip(results, [w.reshape(2, 2), x, w.reshape(2, 2), w], strict=True):
        np.testing.assert_array_equal(got, want)
        assert got.dtype == np.uint8


def _overlap(a: Lifetime, b: Lifetime) -> bool:
    """Return whether two buffers are live in the same step."""
    return a.first <= b.last and b.first <= a.last


def test_offsets_overlap_only_when_lifetimes_do_not():
    rng = np.random.default_rng(0)
    for _ in range(50):
        buffers = []
        for _ in range(rng.integers(1, 40)):
            # Some lifetimes span several periods of the timeline.
            first = int(rng.integers(0, 30)) + 64 * int(rng.integers(0, 2))
            buffers.append(Lifetime(int(rng.integers(0, 5000)), first, first + int(rng.choice([0, 3, 7, 70, 600]))))
        slots = assign_slots(buffers)
        for i, a in enumerate(buffers):
            assert not any(slots[i] == slots[j] and _overlap(a, b) for j, b in enumerate(buffers[:i]))
        offsets = assign_offsets(buffers)
        assert all(o % 64 == 0 for o in offsets)
        for i, (a, p) in enumerate(zip(buffers, offsets, strict=True)):
            for b, q in zip(buffers[:i], offsets[:i], strict=True):
                assert not _overlap(a, b) or p + a.bytes <= q or q + b.bytes <= p
        peak = max(sum(b.bytes for b in buffers if b.first <= t <= b.last) for t in range(800))
        size = max(p + b.bytes for p, b in zip(offsets, buffers, strict=True))
        assert size <= 2 * peak + 64 * len(buffers)
