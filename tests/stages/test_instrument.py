"""Verification, dumps and crash evidence, on toy passes."""

from __future__ import annotations

import io
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

import dlc
from dlc.dialects.host import Host
from dlc.dialects.registry import STANDARD, make_context
from dlc.errors import CompileError, UnsupportedError
from dlc.instrument.dump import NEXT, DumpFolder
from dlc.instrument.manager import PassManager
from dlc.instrument.provenance import kernel_header, origins
from dlc.instrument.report import ProgressEvent
from dlc.instrument.verify import Verifier, verify, verify_legal
from dlc.ir import (
    Block,
    Context,
    FileLineColLoc,
    FunctionType,
    FusedLoc,
    IntAttr,
    ModuleOp,
    ModulePass,
    NameLoc,
    NoneAttr,
    StringAttr,
    VerifyException,
    arith,
    f64,
    func,
    parse_module,
)
from dlc.models.progress import progress_on
from dlc.passes.base import Stage
from dlc.weights import WeightStore

MNIST = Path(__file__).parents[1] / "models" / "small" / "mnist_cnn.onnx"
TEXT = """
func.func @k(%a: f32, %b: f32) -> f32 attributes {kernel} {
  %0 = arith.addf %a, %b : f32
  %1 = arith.mulf %0, %b : f32
  func.return %1 : f32
}
"""


def context() -> Context:
    result = Context()
    for dialect in (*STANDARD, Host):
        result.load_dialect(dialect)
    return result


@pytest.fixture
def module() -> ModuleOp:
    return parse_module(context(), TEXT)


def nothing(module: ModuleOp) -> None:
    pass


def double_sum(module: ModuleOp) -> None:
    for op in list(module.walk()):
        if isinstance(op, arith.AddfOp) and op.parent:
            op.parent.insert_op_before(arith.AddfOp(op.lhs, op.rhs), op)


def fail(module: ModuleOp) -> None:
    next(op for op in module.walk() if isinstance(op, arith.MulfOp)).attributes["half-done"] = StringAttr("yes")
    raise KeyError("tile")


def swap(module: ModuleOp) -> None:
    mul = next(op for op in module.walk() if isinstance(op, arith.MulfOp))
    add = mul.lhs.owner
    assert isinstance(add, arith.AddfOp) and mul.parent is not None
    add.detach()
    mul.parent.insert_op_after(add, mul)


def refuse(module: ModuleOp) -> None:
    raise UnsupportedError("node conv1: 4-D grids")


def named(name_: str, action: Callable[[ModuleOp], None]) -> ModulePass:
    @dataclass(frozen=True)
    class Toy(ModulePass):
        name = name_

        def apply(self, ctx: Context, op: ModuleOp) -> None:
            action(op)

    return Toy()


def stage(*passes: ModulePass) -> Stage:
    return Stage("toy", passes, host=frozenset({"builtin", "func"}), kernels=frozenset({"func", "arith"}))


def test_dominance_is_verified(module: ModuleOp) -> None:
    verify(module)
    swap(module)
    with pytest.raises(VerifyException, match=r"operand 0 .* does not dominate"):
        verify(module)


def test_changed_modules_are_verified_again(module: ModuleOp, monkeypatch: pytest.MonkeyPatch) -> None:
    verified: list[ModuleOp] = []
    monkeypatch.setattr("dlc.instrument.verify.verify", lambda module, right: verified.append(module))
    mul = next(op for op in module.walk() if isinstance(op, arith.MulfOp))
    block, verifier = mul.parent_block(), Verifier()
    assert block is not None
    changes: list[Callable[[], object]] = [
        lambda: None,
        lambda: mul.operands.__setitem__(0, mul.operands[1]),
        lambda: mul.attributes.update(half=StringAttr("done")),
        lambda: mul.properties.update(fastmath=StringAttr("fast")),
        lambda: setattr(mul.result, "_type", f64),
        lambda: setattr(block.args[0], "_type", f64),
        lambda: double_sum(module),
        lambda: swap_order(block),
    ]
    for count, change in enumerate(changes, 1):
        change()
        for _ in range(2):
            verifier.verify(module)
            assert len(verified) == count


def swap_order(block: Block) -> None:
    first = block.first_op
    assert first is not None and first.next_op is not None
    second = first.next_op
    first.detach()
    block.insert_op_after(first, second)


AROUND = """
func.func @f(%a: f32) -> f32 {
  %0 = func.call @g(%a) : (f32) -> f32
  %1 = builtin.unrealized_conversion_cast %0 : f32 to f32
  %2 = arith.addf %1, %1 : f32
  func.return %2 : f32
}
func.func @g(%b: f32) -> f32 {
  func.return %b : f32
}
"""


def change_an_operand(module: ModuleOp) -> None:
    cast = next(op for op in module.walk() if op.name == "builtin.unrealized_conversion_cast")
    cast.results[0]._type = f64  # pyright: ignore[reportPrivateUsage]


def return_twice(module: ModuleOp) -> None:
    first = next(op for op in module.walk() if isinstance(op, func.ReturnOp))
    assert first.parent is not None
    first.parent.insert_op_after(first.clone(), first)


def change_what_is_called(module: ModuleOp) -> None:
    called = module.body.block.last_op
    assert isinstance(called, func.FuncOp)
    called.body.block.args[0]._type = f64  # pyright: ignore[reportPrivateUsage]
    called.function_type = FunctionType.from_lists([f64], [f64])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (change_an_operand, "arith.addf"),
        (return_twice, "must be the last operation"),
        (change_what_is_called, "func.call|operand type"),
    ],
)
def test_changes_around_an_op_are_verified(change: Callable[[ModuleOp], None], message: str) -> None:
    module, verifier = parse_module(context(), AROUND), Verifier()
    verifier.verify(module)
    change(module)
    with pytest.raises(VerifyException, match=message):
        verifier.verify(module)


def test_symbols_are_resolved() -> None:
    call = parse_module(context(), "func.func @f() { host.launch @g() : func.return }")
    with pytest.raises(VerifyException, match="undefined symbol @g"):
        verify(call)


GIVEN = """
  func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> {{
    %y = dl.dispatch @k {} : (tensor<4xf32>) -> tensor<4xf32>
    func.return %y : tensor<4xf32>
  }}
  {}
"""
ON_BUFFERS = "func.func @k(%x: memref<{0}>, %out: memref<4x{1}>) attributes {{kernel}} {{ func.return }}"


def kernel_of(type_: str) -> str:
    return f"dl.kernel @k(%x: {type_}) -> ({type_}) {{ dl.yield %x : {type_} }}"


@pytest.mark.parametrize(
    ("kernel", "matches"),
    [
        (kernel_of("tensor<4xf32>"), True),
        (kernel_of("tensor<5xf32>"), False),
        (kernel_of("tensor<4xi32>"), False),
        ("dl.kernel @k() -> () { dl.yield }", False),
        (ON_BUFFERS.format("4xf32", "f32"), True),
        (ON_BUFFERS.format("2x2xf32", "f32"), False),
        (ON_BUFFERS.format("4xf32", "f64"), False),
    ],
)
def test_dispatch_types_match_the_kernel(kernel: str, matches: bool) -> None:
    module = parse_module(make_context(), GIVEN.format("(%x)", kernel))
    if matches:
        verify(module)
    else:
        with pytest.raises(VerifyException, match=r"arguments do not match the parameters of @k \(C1\)"):
            verify(module)


@pytest.mark.parametrize("kernel", ["func.func private @k(memref<4xf32>, memref<4xf32>)", "builtin.module @k {}"])
def test_dispatched_symbols_are_kernels(kernel: str) -> None:
    module = parse_module(make_context(), GIVEN.format("(%x)", f"builtin.module @kernels {{ {kernel} }}"))
    with pytest.raises(VerifyException, match="the callee is not a kernel"):
        verify(module)


def test_kernels_are_referenced_by_their_own_name() -> None:
    kernel = f"builtin.module @kernels {{ {ON_BUFFERS.format('4xf32', 'f32')} }}"
    text = GIVEN.format("(%x)", kernel).replace("@k (", "@kernels::@k (")
    with pytest.raises(VerifyException, match="expected the symbol of a kernel, got @kernels::@k"):
        verify(parse_module(make_context(), text))


def test_stage_defines_legal_ops(module: ModuleOp) -> None:
    verify_legal(module, Stage("toy", (), frozenset({"builtin"}), frozenset({"func", "arith.addf", "arith.mulf"})))
    with pytest.raises(CompileError, match=r"illegal ops after stage toy: arith\.mulf"):
        verify_legal(module, Stage("toy", (), frozenset({"builtin"}), frozenset({"func", "arith.addf"})))


def test_dump_has_a_file_per_change(module: ModuleOp, tmp_path: Path) -> None:
    weights = WeightStore()
    weights.add(np.ones(3, np.float32))
    plan = [stage(named("rest", nothing), named("double", double_sum)), stage(named("again", double_sum))]
    PassManager(context(), plan, check=True, dump=DumpFolder(tmp_path / "ir", weights)).run(module, plan)
    assert {p.name for p in (tmp_path / "ir").glob("*.mlir")} == {
        "00-start.mlir",
        "02-double.mlir",
        "03-again.mlir",
        "stage-toy.mlir",
    }
    assert "+1 arith.addf" in (tmp_path / "ir" / "index.md").read_text()
    middle = parse_module(context(), (tmp_path / "ir" / "02-double.mlir").read_text())
    assert middle.attributes[NEXT] == StringAttr("again")
    assert NEXT not in module.attributes
    assert (tmp_path / "ir" / "kernels" / "k.toy.mlir").read_text().startswith("// kernel @k")
    assert WeightStore.load(tmp_path / "ir" / "weights")["w"].tolist() == [1, 1, 1]


def test_a_dump_replaces_only_an_earlier_dump(module: ModuleOp, tmp_path: Path) -> None:
    (tmp_path / "mine.mlir").write_text("keep")
    DumpFolder(tmp_path)
    assert (tmp_path / "mine.mlir").exists()
    PassManager(context(), dump=DumpFolder(tmp_path)).run(module, [stage(named("double", double_sum))])
    assert (tmp_path / "01-double.mlir").exists()
    DumpFolder(tmp_path)
    assert not (tmp_path / "01-double.mlir").exists()


@pytest.mark.parametrize("action", [fail, swap])
def test_a_crash_leaves_evidence(module: ModuleOp, tmp_path: Path, action: Callable[[ModuleOp], None]) -> None:
    manager = PassManager(context(), check=True, dump=DumpFolder(tmp_path))
    with pytest.raises(CompileError) as caught:
        manager.run(module, [stage(named("double", double_sum), named("culprit", action))])
    file = tmp_path / "crash" / "before.mlir"
    assert f"dlc opt {file} -p culprit" in str(caught.value)
    before = file.read_text()
    assert before.count("arith.addf") == 2
    assert "half-done" not in before
    verify(parse_module(context(), before))


def test_errors_about_the_program_pass_through(module: ModuleOp) -> None:
    with pytest.raises(UnsupportedError, match="conv1"):
        PassManager(context()).run(module, [stage(named("refuse", refuse))])


def test_records_have_op_counts(module: ModuleOp) -> None:
    manager = PassManager(context())
    manager.run(module, [stage(named("double", double_sum))])
    (record,) = manager.records
    assert (record.stage, record.spec, record.ops_after - record.ops_before) == ("toy", "double", 1)


def test_ops_are_not_counted_without_a_report(module: ModuleOp) -> None:
    manager = PassManager(context(), count_ops=False)
    manager.run(module, [stage(named("double", double_sum))])
    (record,) = manager.records
    assert (record.ops_before, record.ops_after) == (0, 0)


def test_origins_of_a_location() -> None:
    line = FileLineColLoc(StringAttr("model.py"), IntAttr(3), IntAttr(1))
    name = NameLoc(StringAttr("conv1"), NoneAttr())
    assert origins(FusedLoc([name, line], NoneAttr())) == ("conv1", "model.py:3")
    assert "#1 relu1" in kernel_header("k", [("conv1", "relu1")])


def test_progress_is_reported() -> None:
    events: list[ProgressEvent] = []
    dlc.compile_model(MNIST, cache=False, progress=events.append)
    passes = [event for event in events if event.phase in ("dl", "fusion")]
    assert [event.done for event in passes] == list(range(passes[0].total))
    kernels = [event for event in events if event.phase == "kernels" and event.total]
    assert kernels and all(event.done < event.total and event.item for event in kernels)
    assert str(ProgressEvent("kernels", "matmul_2", 2, 40)) == "kernels 3 of 40: matmul_2"


def test_illegal_progress_arguments_are_rejected() -> None:
    with pytest.raises(dlc.DlcError, match="progress: expected a bool or a function of one argument, got 'yes'"):
        dlc.compile_model(MNIST, progress="yes")


def test_progress_is_shown_on_terminals_only() -> None:
    shown, piped = io.StringIO(), io.StringIO()
    with progress_on(Console(file=shown, force_terminal=True)) as tell:
        assert tell is not None
        tell(ProgressEvent("measuring"))
    assert "measuring" in shown.getvalue()
    with progress_on(Console(file=piped)) as tell:
        assert tell is None
    assert not piped.getvalue()
