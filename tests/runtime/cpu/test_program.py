"""Host programs on the CPU, from the text of a `dl` module, with hand-written kernels."""

from __future__ import annotations

import threading

import numpy as np
import pytest

from dlc.arrays import address_of
from dlc.backends.cpu.llvm import compile_text
from dlc.backends.cpu.runtime_code import runtime_object
from dlc.backends.read_host import read_host
from dlc.dialects.registry import make_context
from dlc.errors import CompileError, ModelError
from dlc.ir import parse_module
from dlc.passes.host.bufferize_host import BufferizeHostPass
from dlc.passes.host.plan_arena import PlanArenaPass
from dlc.runtime.cpu.code.loader import load_object
from dlc.runtime.cpu.code.native import runtime
from dlc.runtime.cpu.program import LoadedKernel, NativeProgram
from dlc.target import CPU_LEVELS

NATIVE = runtime(runtime_object())

N = 1 << 14  # elements: more than a launch that is too small to share

# scale: y = x · w, then y = y + x in a second grid; 64 elements a task.
KERNEL = """
define void @scale(ptr %arguments, i64 %task) {
  %w.at = getelementptr ptr, ptr %arguments, i64 1
  %y.at = getelementptr ptr, ptr %arguments, i64 2
  %x = load ptr, ptr %arguments
  %w = load ptr, ptr %w.at
  %y = load ptr, ptr %y.at
  %i = mul i64 %task, 64
  %xi = getelementptr float, ptr %x, i64 %i
  %wi = getelementptr float, ptr %w, i64 %i
  %yi = getelementptr float, ptr %y, i64 %i
  %a = load <64 x float>, ptr %xi, align 4
  %b = load <64 x float>, ptr %wi, align 4
  %c = fmul <64 x float> %a, %b
  store <64 x float> %c, ptr %yi, align 4
  ret void
}

define void @add(ptr %arguments, i64 %task) {
  %y.at = getelementptr ptr, ptr %arguments, i64 2
  %x = load ptr, ptr %arguments
  %y = load ptr, ptr %y.at
  %i = mul i64 %task, 64
  %xi = getelementptr float, ptr %x, i64 %i
  %yi = getelementptr float, ptr %y, i64 %i
  %a = load <64 x float>, ptr %xi, align 4
  %b = load <64 x float>, ptr %yi, align 4
  %c = fadd <64 x float> %a, %b
  store <64 x float> %c, ptr %yi, align 4
  ret void
}
"""

T = f"tensor<{N}xf32>"
WIDE = f"tensor<128x{N // 128}xf32>"
DISPATCH = f"dl.dispatch @k(%{{}}, %w) : ({T}, {T}) -> {T}"
PROGRAM = f"""
func.func @main(%x: {T} {{dl.name = "x"}}) -> ({WIDE} {{dl.name = "y"}}, {T} {{dl.name = "half"}}, {T} {{dl.name = "same"}}) {{
  %w = dl.weight {{symbol = @w, type = {T}}} : () -> {T}
  %a = {DISPATCH.format("x")}
  %b = {DISPATCH.format("a")}
  %c = {DISPATCH.format("b")}
  %d = {DISPATCH.format("c")}
  %y = dl.reshape %d {{shape = array<i64: 128, {N // 128}>}} : ({T}) -> {WIDE}
  func.return %y, %b, %x : {WIDE}, {T}, {T}
}}
"""


@pytest.fixture(scope="module")
def image() -> LoadedKernel:
    code = load_object(compile_text(KERNEL, CPU_LEVELS["cpu:generic"]))
    return LoadedKernel(((code.address("scale"), N // 64), (code.address("add"), N // 64)), code)


def host_program(text: str = PROGRAM):
    module = parse_module(make_context(), text)
    for step in (BufferizeHostPass(), PlanArenaPass()):
        step.apply(make_context(), module)
    return read_host(module)


def weights() -> dict[str, np.ndarray]:
    return {"w": np.random.default_rng(1).random(N, np.float32)}


def expected(x: np.ndarray) -> list[np.ndarray]:
    w, steps = weights()["w"], [x]
    for _ in range(4):
        steps.append(steps[-1] * w + steps[-1])
    return [steps[4].reshape(128, -1), steps[2], x]


def check(program: NativeProgram, x: np.ndarray) -> None:
    for got, want in zip(program.run([x]), expected(x), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-5)


@pytest.mark.parametrize("threads", [1, 2, 3, None])
def test_a_program_runs(image, threads):
    program = NativeProgram(host_program(), {"k": image}, weights(), NATIVE, threads)
    assert [str(i) for i in program.inputs] == [f"x: float32[{N}]"]
    assert [i.name for i in program.outputs] == ["y", "half", "same"]
    x = np.random.default_rng(2).random(N, np.float32)
    check(program, x)
    check(program, x[::-1])
    check(program, np.concatenate([x[:1], x])[1:])
    check(program, np.frombuffer(b"\0" + x.tobytes(), np.float32, offset=1))
    first = program.run([x])
    program.run([x + 1])
    np.testing.assert_array_equal(first[2], x, err_msg="a later call must not change earlier results")
    assert not np.shares_memory(first[2], x)


def test_two_buffers_suffice_for_the_chain(image):
    # The arena holds %a and %c; %b and %d are outputs.
    assert host_program().arena_bytes == 4 * N


def test_calls_from_several_threads(image):
    program = NativeProgram(host_program(), {"k": image}, weights(), NATIVE, 2)
    start, errors = threading.Barrier(4), []

    def call(seed: int) -> None:
        x = np.random.default_rng(seed).random(N, np.float32)
        start.wait()
        try:
            for _ in range(50):
                check(program, x)
        except AssertionError as error:
            errors.append(error)

    callers = [threading.Thread(target=call, args=(seed,)) for seed in range(4)]
    for t in callers:
        t.start()
    for t in callers:
        t.join()
    assert not errors


def test_each_launch_is_traced(image):
    program, noted = NativeProgram(host_program(), {"k": image}, weights(), NATIVE, 1), []
    x = np.ones(N, np.float32)
    results = program.run_traced([x], lambda launch, at: noted.append((launch.kernel, at(launch.arguments[-1]))))
    assert [kernel for kernel, _ in noted] == ["k", "k", "k", "k", None]
    assert np.array_equal(results[0], program.run([x])[0])
    assert [at for _, at in noted if at == address_of(results[1])]


def test_programs_can_share_memory(image):
    """It uses the arena and the weights of the other program and never reads its own."""
    other = NativeProgram(host_program(), {"k": image}, weights(), NATIVE, 1)
    program = NativeProgram(host_program(), {"k": image}, {"w": np.zeros(N, np.float32)}, NATIVE, 1)
    program.share_memory_with(other)
    x, places = np.ones(N, np.float32), []
    for each in (program, other):
        check(each, x)
        each.run_traced([x], lambda launch, at: places.append(at(launch.arguments[-1])) if launch.kernel else None)
    first, second = places[:4], places[4:]
    assert first[0] == second[0] and first[2] == second[2]


def test_mismatched_weights_are_rejected(image):
    with pytest.raises(ModelError, match="w: missing in the weight store"):
        NativeProgram(host_program(), {"k": image}, {}, NATIVE)
    with pytest.raises(ModelError, match=r"expected w: float32\[16384\], the store has float32\[3\]"):
        NativeProgram(host_program(), {"k": image}, {"w": np.ones(3, np.float32)}, NATIVE)


def test_an_unplanned_program_is_rejected():
    module = parse_module(make_context(), PROGRAM)
    BufferizeHostPass().apply(make_context(), module)
    with pytest.raises(CompileError, match=r"memref\.alloc .* plan-arena"):
        read_host(module)
