"""Building kernels, and the cache of binaries."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import dlc
from dlc.caching.cache import Cache
from dlc.errors import DeviceError, TooLargeError, UnsupportedError
from dlc.runtime.opencl import artifact
from dlc.runtime.opencl import build as build_module
from dlc.runtime.opencl.build import Builder, BuiltProgram, build
from dlc.runtime.opencl.devices import Session, all_devices, open_device, select_device
from dlc.runtime.opencl.driver import opencl, set_i64_argument
from dlc.runtime.opencl.isolated_build import (
    FunctionRun,
    KernelBatch,
    build_batch,
    build_in_subprocesses,
    program_binary,
    program_from_binary,
    program_from_source,
)
from dlc.runtime.opencl.kernel import OpenCLKernel
from dlc.runtime.program.host_program import KernelSignature, Launch
from dlc.runtime.program.kernel_text import Grid
from tests.models.skeletons import path_of

pytestmark = pytest.mark.skipif(not all_devices(), reason="no OpenCL device")


@pytest.fixture
def session() -> Session:
    return open_device(select_device("opencl")[0])


def kernel(name: str, body: str = "y[get_global_id(0)] = 2 * x[get_global_id(0)];") -> OpenCLKernel:
    arrays = "__global const float *restrict x, const long x_start, __global float *restrict y, const long y_start"
    head = f"__kernel void {name}_0({arrays})"
    return OpenCLKernel(name, (f"{head} {{ {body} }}\n",), (Grid(4, 2),), KernelSignature(0, (32, 32)))


def launches(*names: str) -> list[Launch]:
    return [Launch(name, ((2, 0), (3, 0)), (32, 32)) for name in names]


def part(*names: str, items: int = 2) -> KernelBatch:
    return KernelBatch(
        "".join(kernel(n).text for n in names), "", tuple(FunctionRun(f"{n}_0", n, 4, items, (64, 64)) for n in names)
    )


def doubled(program: BuiltProgram, source: OpenCLKernel, session: Session) -> list[float]:
    """Run the kernel on 0…7 and return its results."""
    import pyopencl as cl

    x, y = np.arange(8, dtype=np.float32), np.zeros(8, np.float32)
    buffers = [cl.Buffer(session.context, cl.mem_flags.COPY_HOST_PTR, hostbuf=a) for a in (x, y)]
    arguments = [argument for buffer in buffers for argument in (buffer, np.int64(0))]
    (grid,) = program.kernels([source])[source.name]
    grid.make()(session.queue, (int(grid.groups) * grid.items,), (grid.items,), *arguments)
    cl.enqueue_copy(session.queue, y, buffers[1])
    return y.tolist()


def test_a_binary_is_cached_and_loaded(session: Session, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source, cache = kernel("a"), Cache(tmp_path)
    built_now = build("m", [source], launches("a"), Builder(session.device, cache, 1))
    monkeypatch.setattr(build_module, "_compile", None)
    loaded = build("m", [source], launches("a"), Builder(session.device, cache, 1))
    assert doubled(built_now, source, session) == doubled(loaded, source, session) == [0, 2, 4, 6, 8, 10, 12, 14]
    (entry,) = cache.entries()
    assert (entry.kind, entry.hits, entry.metadata["kernels"]) == ("opencl", 1, ["a"])


@pytest.mark.parametrize("damage", [lambda data: data[:-1] + bytes([data[-1] ^ 1]), lambda data: b"", lambda data: data[:40]])
def test_a_damaged_entry_is_rebuilt(session: Session, tmp_path: Path, caplog: pytest.LogCaptureFixture, damage: Any) -> None:
    source, cache = kernel("a"), Cache(tmp_path)
    build("m", [source], launches("a"), Builder(session.device, cache, 1))
    (entry,) = cache.entries()
    entry.path.write_bytes(damage(entry.path.read_bytes()))
    with caplog.at_level(logging.INFO):
        program = build("m", [source], launches("a"), Builder(session.device, cache, 1))
    assert "removing damaged entry" in caplog.text
    assert doubled(program, source, session)[1] == 2


def test_a_rejected_binary_is_rebuilt(session: Session, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source, cache = kernel("a"), Cache(tmp_path)
    monkeypatch.setattr(build_module, "program_binary", lambda program: b"not a binary")
    build("m", [source], launches("a"), Builder(session.device, cache, 1))
    monkeypatch.undo()
    assert doubled(build("m", [source], launches("a"), Builder(session.device, cache, 1)), source, session)[1] == 2


def test_kernels_are_split_over_processes(session: Session, tmp_path: Path) -> None:
    sources = [kernel(f"k{i}") for i in range(9)]
    program = build("m", sources, launches(*(s.name for s in sources)), Builder(session.device, Cache(None), 2))
    assert sorted(len(names) for names, _ in program.programs) == [4, 5]
    assert doubled(program, sources[8], session)[7] == 14


def test_batches_are_built_in_subprocesses(session: Session) -> None:
    binaries = build_in_subprocesses([part("a"), part("b", "c")], session.device)
    assert len(binaries) == 2 and program_from_binary(binaries[0], session)
    with pytest.raises(TooLargeError, match="groups of 1048576 items") as raised:
        build_in_subprocesses([part("a"), part("b", items=1 << 20)], session.device)
    assert list(raised.value.kernels) == ["b"]
    with pytest.raises(DeviceError, match="compiler fails"):
        build_in_subprocesses([KernelBatch("no C at all", "", ())], session.device)


def test_guarded_builds_cannot_crash_this_process(session: Session) -> None:
    crash = kernel("b", "*(__global volatile int *)8 = 1;")
    # On a processor it is the process that writes there; on another device its driver tells.
    said = "ended with status -" if session.device.kind == "cpu" else "b_0: cl.* failed"
    with pytest.raises(TooLargeError, match=said) as raised:
        build("m", [kernel("a"), crash], launches("a", "b"), Builder(session.device, Cache(None), 1, guarded=True))
    assert list(raised.value.kernels) == ["b"]


def test_a_binary_contains_compiled_functions(session: Session) -> None:
    assert program_binary(build_batch(part("a"), session))


def test_i64_arguments_with_any_binding(session: Session) -> None:
    cl = opencl()
    program = program_from_source("__kernel void k(__global long *y, const long n) { y[0] = n; }", "", session)
    object, y = cl.Kernel(program, "k"), np.zeros(1, np.int64)
    buffer = cl.Buffer(session.context, cl.mem_flags.COPY_HOST_PTR, hostbuf=y)
    object.set_arg(0, buffer)
    for kernel, number in ((object, -(1 << 40)), (SimpleNamespace(set_arg=object.set_arg), 1 << 41)):
        set_i64_argument(kernel, 1, number)
        cl.enqueue_nd_range_kernel(session.queue, object, (1,), (1,))
        cl.enqueue_copy(session.queue, y, buffer)
        assert y.tolist() == [number]


def test_build_errors_name_the_kernel(session: Session) -> None:
    with pytest.raises(TooLargeError) as raised:
        build("m", [kernel("a"), kernel("b", "nonsense;")], launches("a", "b"), Builder(session.device, Cache(None), 1))
    assert list(raised.value.kernels) == ["b"] and "nonsense" in str(raised.value)


def softmax(x: Any) -> Any:
    e = dlc.numpy.exp(x - dlc.numpy.max(x, axis=-1, keepdims=True))
    return e / dlc.numpy.sum(e, axis=-1, keepdims=True)


def test_too_large_kernels_are_compiled_for_a_smaller_target(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[list[OpenCLKernel]] = []

    def limited(name: str, sources: Sequence[OpenCLKernel], *rest: Any) -> BuiltProgram:
        seen.append(list(sources))
        if len(seen) == 1:
            raise TooLargeError({sources[0].name: "too many registers"})
        return build(name, sources, *rest)

    monkeypatch.setattr(artifact, "build", limited)
    x = np.random.default_rng(0).standard_normal((4, 96), np.float32)
    got = dlc.jit(target="opencl:gpu", cache=False)(softmax)(x)
    expected = np.exp(x) / np.exp(x).sum(-1, keepdims=True)
    np.testing.assert_allclose(got, expected, rtol=1e-5)
    assert len(seen) == 2
    assert all(grid.items <= 64 for source in seen[1] for grid in source.grids if source.name == seen[0][0].name)


def test_kernels_may_become_too_large_later(monkeypatch: pytest.MonkeyPatch) -> None:
    complained: list[str] = []

    def limited(name: str, sources: Sequence[OpenCLKernel], *rest: Any) -> BuiltProgram:
        if others := sorted({source.name for source in sources} - {*complained}):
            complained.append(others[0])
            raise TooLargeError({others[0]: "too many registers"})
        assert all(grid.items <= 64 for source in sources for grid in source.grids)
        return build(name, sources, *rest)

    monkeypatch.setattr(artifact, "build", limited)
    x = np.random.default_rng(0).standard_normal((96, 96), np.float32)
    got = dlc.jit(target="opencl:gpu", cache=False)(lambda x: softmax(x @ x))(x)
    np.testing.assert_allclose(got, np.exp(x @ x) / np.exp(x @ x).sum(-1, keepdims=True), rtol=1e-3)
    assert len(complained) == 2


def test_kernels_too_large_for_the_smallest_profile_are_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    def never(name: str, sources: Sequence[OpenCLKernel], *rest: Any) -> BuiltProgram:
        raise TooLargeError({sources[0].name: "too many registers"})

    monkeypatch.setattr(artifact, "build", never)
    with pytest.raises(DeviceError, match=r"(?s)softmax: opencl:.*cannot hold.*test_build.py.*: too many registers"):
        dlc.jit(target="opencl:gpu", cache=False)(softmax)(np.zeros((4, 96), np.float32))


def test_unsupported_dtypes_are_reported() -> None:
    with pytest.raises(UnsupportedError, match=r"(?s)as opencl:small does not compute in f64.*kernel .*test_build.py"):
        dlc.jit(target="opencl:small")(lambda x: x * 2)(np.zeros(4, np.float64))


SECOND = """
import sys
import numpy as np
import dlc
from dlc.runtime.opencl import build
if sys.argv[2] == "again":
    build.built = build.build_in_subprocesses = None
print(np.asarray(dlc.compile_model(sys.argv[1], target="opencl")(np.ones((1, 1, 28, 28), np.float32))["probs"]).argmax())
"""


def test_a_second_process_builds_nothing(tmp_path: Path) -> None:
    answers = [
        subprocess.run(
            [sys.executable, "-c", SECOND, str(path_of("mnist_cnn")), when],
            env={**os.environ, "DLC_CACHE": "1", "DLC_CACHE_DIR": str(tmp_path)},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for when in ("first", "again")
    ]
    assert answers[0] == answers[1] != ""


def test_strict_numerics_need_doubles() -> None:
    with pytest.raises(UnsupportedError, match="strict numerics need f64"):
        dlc.jit(target="opencl:small", numerics="strict")(lambda x: x * 2)(np.zeros(4, np.float32))
