"""A recorded compilation: texts after each pass, and links between lines down to machine code."""

from __future__ import annotations

import re
from itertools import pairwise

import pytest

from dlc.backends.cpu.listings import asm_listing, llvm_listing
from dlc.backends.registry import backend_of
from dlc.compiler.compilation import Compilation
from dlc.compiler.kernels import all_kernels, lower_kernel, symbol_of
from dlc.compiler.lowering import Lowering
from dlc.dialects.registry import make_context
from dlc.explore.data import PipelineStep, Unit
from dlc.instrument.compilation_record import CompilationRecorder
from dlc.instrument.printing import PrintedModules, print_with_lines
from dlc.ir import UnknownLoc, parse_module, print_module
from dlc.models.model_files import import_program
from dlc.target import resolve
from tests.explore.programs import MNIST, XS, W, explored, mnist, recurrence
from tests.targets import SHORT


def lines(step: PipelineStep) -> list[str]:
    return step.listing.text.splitlines()


def unit(name: str) -> Unit:
    return next(u for u in explored().units if u.name == name)


def test_incremental_text_equals_full_text() -> None:
    lowering, texts = Lowering(Compilation(import_program(MNIST, None, None, None), backend_of("cpu:avx2"))), PrintedModules()
    for stage in lowering.plan[:4]:
        lowering.run((stage,))
        found = texts.of(lowering.module)
        assert found is not None and found.text == print_module(lowering.module, locations=False)
        shown = found.text.splitlines()
        assert all(op.name in shown[line] for op, line in found.lines.items())
        assert len(found.lines) > found.text.count("dl.")
        assert texts.of(lowering.module) is None


def test_text_follows_names_attributes_and_locations() -> None:
    module, texts = import_program(MNIST, None, None, None).module, PrintedModules()
    texts.of(module)
    conv = next(op for op in module.walk() if op.name == "dl.conv")
    conv.results[0].name_hint = "another"
    conv.properties["groups"] = next(op for op in module.walk() if op.name == "dl.softmax").properties["axis"]
    found = texts.of(module)
    assert found is not None and found.text == print_module(module, locations=False) and found.text.count("%another") == 2
    conv.location = UnknownLoc()
    found = texts.of(module)
    assert found is not None and found.text == print_module(module, locations=False)


NESTED = """builtin.module {
  func.func @f(%n: index, %0: f32) -> f32 {
    %one = arith.constant 1 : index
    %s = scf.for %k = %one to %n step %one iter_args(%a = %0) -> (f32) {
      %t = arith.addf %a, %a fastmath<fast> : f32
      scf.yield %t : f32
    }
    scf.for %k_1 = %one to %n step %one {
      %1 = arith.addi %k_1, %one : index
    }
    dl.fail "100% of 5" {note = "100%"}
    func.return %s : f32
  }
  func.func @g(%n_1: index) {
    "scf.parallel"(%n_1, %n_1, %n_1) <{operandSegmentSizes = array<i32: 1, 1, 1, 0>}> ({
    ^bb0(%k: index):
      scf.reduce
    }) : (index, index, index) -> ()
    func.return
  }
}
"""


def test_text_of_ops_in_ops() -> None:
    module, texts = parse_module(make_context(), NESTED), PrintedModules()
    assert print_with_lines(module).text == print_module(module, locations=False)
    texts.of(module)
    # Ops that move to the enclosing block may keep their order.
    add = next(op for op in module.walk() if op.name == "arith.addi")
    loop = add.parent_op()
    assert loop is not None
    block = loop.parent_block()
    assert block is not None
    add.detach()
    block.insert_op_after(add, loop)
    found = texts.of(module)
    assert found is not None and found.text == print_module(module, locations=False)


def test_only_passes_with_changes_are_steps() -> None:
    for u in explored().units:
        texts = [step.listing.text for step in u.steps]
        assert all(a != b for a, b in pairwise(texts))
        assert all(len(step.listing.origins) == len(lines(step)) for step in u.steps)
    assert [s.stage for s in unit("program").steps][:2] == ["source", ""]
    assert [s.stage for s in unit("program").steps][-1] == "host"


# Depends on whether the processor has fused multiply-add.
PRODUCTS = {"llvm": r"@llvm\.fma", "asm": r"vfmadd"} if resolve(SHORT).has_fma else {"llvm": r" fmul ", "asm": r"mulps"}


@pytest.mark.parametrize("form, wanted", PRODUCTS.items())
def test_code_lines_link_to_loops(form: str, wanted: str) -> None:
    name = next(k.name for k in explored().kernels if "matmul" in k.name)
    steps = {s.stage: s for s in unit(name).steps}
    loops, code = lines(steps["loops"]), steps[form]
    found = [code.listing.lines[k] for k, text in enumerate(lines(code)) if re.search(wanted, text)]
    products = [k for k, text in enumerate(loops) if "vector.fma" in text]
    assert len(products) >= 1 and set(products) <= set(found)
    # Tanh is a polynomial; its products have the origin of the tanh.
    assert all("fma" in loops[k] for k in found)


def test_lines_link_to_python() -> None:
    source = unit("program").steps[0]
    (line,) = [k for k, text in enumerate(lines(source)) if "h @ w" in text]
    (origin,) = source.listing.origins[line]
    assert re.fullmatch(r".*programs\.py:\d+", origin)
    name = next(k.name for k in explored().kernels if "matmul" in k.name)
    for step in unit(name).steps:
        assert any(origin in names for names in step.listing.origins), step.stage


def test_nodes_are_their_own_origins() -> None:
    source = mnist().units[0].steps[0].listing
    assert source.text.splitlines()[1] == "relu = Relu(getitem)" and source.origins[1] == ("node_relu",)


LLVM = """define void @k() !dbg !5 {
  %v1 = add i64 1, 2, !dbg !DILocation(line: 7, scope: !5)
  ret void
}

!llvm.dbg.cu = !{!0}
"""


def test_llvm_without_debug_info() -> None:
    found = llvm_listing(LLVM)
    assert found.text == "define void @k() {\n  %v1 = add i64 1, 2\n  ret void\n}\n"
    assert found.lines == (-1, 6, -1, -1)


def test_assembly_without_debug_info() -> None:
    asm = "k:\n.Lfunc_begin0:\n\t.loc\t1 3 0\n\t.cfi_startproc\n\taddq\t%rax, %rbx # why\n.LBB0_1:\n\tadd x0, x0, #8 // why\n\tret\n\t.section\t.debug_abbrev\n\tx\n"
    found = asm_listing(asm)
    assert (found.text, found.lines) == ("k:\n\taddq\t%rax, %rbx\n.LBB0_1:\n\tadd x0, x0, #8\n\tret\n", (-1, 2, -1, 2, 2))


def test_c_line_origins() -> None:
    recorder = CompilationRecorder()
    c = Compilation(recurrence.lower(W, XS).program, backend_of("opencl:small"), recorder=recorder)
    lowering = Lowering(c)
    lowering.run(lowering.stages(kernels=False))
    kernel = next(k for k in all_kernels(lowering.module) if symbol_of(k) == "exp")
    watch = recorder.kernel_recorder(kernel, lowering.stages(kernels=True))
    observer = watch.after_pass
    lowered, _ = lower_kernel(kernel, lowering.stages(kernels=True), lowering.context, check=False, observer=observer)
    _, (code,) = c.backend.compile_with_listing("exp", c.backend.emit_with_locations(lowered, watch.lines))
    assert code.format == "opencl" and len(code.line_origins) == len(code.text.splitlines())
    lines = zip(code.line_origins, code.text.splitlines(), strict=True)
    stores = [places for places, line in lines if "out" in line and "=" in line and "out_memory" not in line]
    assert stores and set(stores) == {("#0",)}
