"""Models as shared libraries, loaded and called with ctypes."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from numpy.typing import NDArray

import dlc
from dlc.arrays import TensorInfo, aligned_empty
from dlc.backends.cpu.runtime_code import runtime_object
from dlc.cli import main
from dlc.deploy import SUFFIXES, write_library
from dlc.errors import DlcError, UnsupportedError
from dlc.runtime.cpu.artifact import Artifact
from dlc.runtime.models.model import Model
from dlc.runtime.models.specialized_model import SpecializedModel
from dlc.runtime.program.host_program import HostProgram
from dlc.shapes.dims import Dim, Size, substitute
from dlc.shapes.ranges import SizeRange
from dlc.target import CPU_LEVELS
from tests.deploy.models import W, X, by_shape, failing, layer, loops, multiplied, served, several, sizes_of, update
from tests.shapes import test_data_dependent_sizes as counts

TASK = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64)
PARALLEL = ctypes.CFUNCTYPE(None, ctypes.c_void_p, TASK, ctypes.c_void_p, ctypes.c_int64)


class Given(ctypes.Structure):
    """dlc_selector."""

    _fields_ = (
        ("name", ctypes.c_char_p),
        ("value", ctypes.c_void_p),
        ("bytes", ctypes.c_size_t),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("rank", ctypes.c_int32),
    )


class Call(ctypes.Structure):
    """The layout of `dlc_call`."""

    _fields_ = (
        ("inputs", ctypes.POINTER(ctypes.c_void_p)),
        ("outputs", ctypes.POINTER(ctypes.c_void_p)),
        ("sizes", ctypes.POINTER(ctypes.c_int64)),
        ("memory", ctypes.c_void_p),
        ("bytes", ctypes.c_int64),
        ("shapes", ctypes.POINTER(ctypes.c_int64)),
        ("pool", ctypes.c_void_p),
        ("parallel", PARALLEL),
        ("user", ctypes.c_void_p),
        ("required_bytes", ctypes.c_int64),
        ("failed_operation", ctypes.c_int64),
        ("program", ctypes.c_void_p),
        ("selectors", ctypes.POINTER(Given)),
        ("selector_count", ctypes.c_int64),
        ("unmatched_input", ctypes.c_char_p),
    )


def pointers(arrays: Sequence[NDArray[Any] | None]) -> Any:
    return (ctypes.c_void_p * max(len(arrays), 1))(*(a.ctypes.data if a is not None else None for a in arrays))


class Library:
    """A model that was written as a library and loaded."""

    def __init__(self, model: Model, path: Path) -> None:
        write_library(model, path)
        self.model = model
        self.function = getattr(ctypes.CDLL(str(path)), f"dlc_model_{path.stem}")
        self.function.restype, self.function.argtypes = ctypes.c_int64, [ctypes.POINTER(Call)]

    def __call__(
        self, inputs: Sequence[Any], parallel: Any = None, sizes: Sequence[int] | None = None, given: Sequence[Given] = ()
    ) -> list[NDArray[Any]]:
        infos = (*self.model.inputs, *self.model.outputs)
        shapes = (ctypes.c_int64 * sum(len(info.shape) for info in infos))()
        known = sizes_of(self.model, inputs) if sizes is None else sizes
        call = Call(inputs=pointers(inputs), sizes=(ctypes.c_int64 * max(len(known), 1))(*known), shapes=shapes)
        call.selectors, call.selector_count = (Given * max(len(given), 1))(*given), len(given)
        if parallel is not None:
            call.parallel = parallel
        self.code = self.function(call)
        self.unmatched_input = call.unmatched_input
        if self.code:
            return []
        all_sizes = iter(shapes)
        said = [[next(all_sizes) for _ in info.shape] for info in infos][len(inputs) :]
        outputs = [np.full(shape, 77, info.dtype) for shape, info in zip(said, self.model.outputs, strict=True)]
        memory = aligned_empty((call.required_bytes,), np.uint8)
        call.outputs, call.memory, call.bytes = pointers(outputs), memory.ctypes.data, call.required_bytes - 1
        assert self.function(call) == 2  # The memory is too small.
        call.bytes = call.required_bytes
        self.code = self.function(call)
        while self.code == 2:
            # A data-dependent size requires more memory.
            memory = aligned_empty((call.required_bytes,), np.uint8)
            call.memory, call.bytes = memory.ctypes.data, call.required_bytes
            self.code = self.function(call)
        if self.code:
            return outputs
        all_sizes = iter(shapes)
        known_now = [[next(all_sizes) for _ in info.shape] for info in infos][len(inputs) :]
        for k, (info, shape) in enumerate(zip(self.model.outputs, known_now, strict=True)):
            if call.outputs[k] != outputs[k].ctypes.data:
                found = ctypes.string_at(call.outputs[k], int(np.prod(shape)) * info.dtype.itemsize)
                outputs[k] = np.frombuffer(found, info.dtype).reshape(shape)
        return outputs


@pytest.fixture(scope="module")
def layers(tmp_path_factory: pytest.TempPathFactory) -> Library:
    return Library(layer(), tmp_path_factory.mktemp("library") / "layer.so")


@pytest.fixture(scope="module")
def loop(tmp_path_factory: pytest.TempPathFactory) -> Library:
    return Library(loops(), tmp_path_factory.mktemp("library") / "loop.so")


def same(got: Sequence[Any], want: Any) -> None:
    assert len(got) == len(want)
    for g, w in zip(got, want.values(), strict=True):
        np.testing.assert_array_equal(g, w)


def test_it_computes_what_the_model_computes(layers: Library) -> None:
    same(layers((X, W[1])), layers.model(X, W[1]))


def test_an_input_with_a_default_may_be_left_out(layers: Library) -> None:
    same(layers((X, None)), layers.model(X))


def test_tasks_run_on_threads_of_the_callers(layers: Library) -> None:
    shared: list[int] = []

    def backwards(user: int, task: Callable[[int, int], None], argument: int, tasks: int) -> None:
        shared.append(tasks)
        for k in reversed(range(tasks)):
            task(argument, k)

    same(layers((X, W[1]), PARALLEL(backwards)), layers.model(X, W[1]))
    assert shared and min(shared) > 1


@pytest.mark.parametrize("size", [(1, 1), (0, 3), (3, 0), (2, 7), (40, 5)])
def test_symbolic_sizes(loop: Library, size: tuple[int, int]) -> None:
    x = np.random.default_rng(sum(size)).standard_normal((*size, 4)).astype(np.float32)
    same(loop([x]), loop.model(x))


def test_data_dependent_sizes(tmp_path: Path) -> None:
    library = Library(counts.compiled(counts.ROWS, "cpu"), tmp_path / "rows.so")
    for n in (5, 0, 300, 2):
        same(library([counts.rows(n)]), library.model(counts.rows(n)))
    header = (tmp_path / "rows.h").read_text()
    assert "Data-dependent sizes:" in header and "of outputs[0], outputs[1], outputs[2];" in header and "_BYTES" not in header


@pytest.mark.parametrize("size", [-1, 1 << 41, 1 << 62, -(1 << 63)])
def test_negative_size(loop: Library, size: int) -> None:
    loop([np.zeros((1, 1, 4), np.float32)], sizes=(2, size))
    assert loop.code == 1


def test_default_program_of_a_specialized_model(tmp_path: Path) -> None:
    library = Library(served(), tmp_path / "served.so")
    for n in (5, 9):
        same(library([X[:n, :4].copy()]), library.model(X[:n, :4]))
    library([X[:4, :4].copy()])
    assert library.code == 1
    assert "size 0    n in 5.." in (tmp_path / "served.h").read_text()


def test_donated_inputs(tmp_path: Path) -> None:
    library = Library(update(), tmp_path / "update.so")
    p, g = X.copy(), X[::-1].copy()
    untouched, total = library((p, g))
    assert (untouched == 77).all()
    same([p, total], library.model(X.copy(), g))


def test_model_failures(tmp_path: Path) -> None:
    library = Library(failing(), tmp_path / "failing.so")
    library([np.int64([1, 5, 7])])
    assert library.code == 0
    library([np.int64([0, 5, 7])])
    assert library.code == -1


def test_several_models_are_in_one_process(layers: Library, loop: Library, tmp_path: Path) -> None:
    again = Library(layers.model, tmp_path / "again.so")
    x = np.ones((2, 3, 4), np.float32)
    for _ in range(3):
        same(again((X, W[1])), layers.model(X, W[1]))
        same(layers((X, W[2])), layers.model(X, W[2]))
        same(loop([x]), loop.model(x))


def test_one_symbol_and_no_other_library(layers: Library, tmp_path: Path) -> None:
    if not (nm := shutil.which("nm")) or not (readelf := shutil.which("readelf")):
        pytest.skip("binutils are not there")
    write_library(layers.model, tmp_path / "m.so")
    listed = subprocess.run([nm, "-D", tmp_path / "m.so"], capture_output=True, text=True, check=True).stdout
    assert [line.split()[1:] for line in listed.splitlines()] == [["T", "dlc_model_m"]]
    shown = subprocess.run([readelf, "-dlW", tmp_path / "m.so"], capture_output=True, text=True, check=True)
    assert not shown.stderr and "NEEDED" not in shown.stdout and " RWE " not in shown.stdout


def test_selection_by_value(tmp_path: Path) -> None:
    library, x = Library(multiplied(), tmp_path / "values.so"), X[:2, :48].copy()
    library.model = dlc.jit(lambda x: x).lower(x).compile()

    def picked(**numbers: int) -> list[NDArray[Any]]:
        values = {name: np.array(number) for name, number in numbers.items()}
        return library([x], given=[Given(name.encode(), value.ctypes.data, 8) for name, value in values.items()])

    for by, more in ((1, 3), (2, 2), (2, 3)):
        same(picked(more=more, by=by), multiplied()(x, np.int64(by), np.int64(more)))
    for wrong, unmatched_input in (({}, b"by"), ({"by": 3}, b"by"), ({"by": 2}, b"more"), ({"by": 2, "more": 1}, b"more")):
        assert picked(**wrong) == [] and (library.code, library.unmatched_input) == (6, unmatched_input)
    header = (tmp_path / "values.h").read_text()
    assert " * for by = 1:\n *     input 0   x: float32[2, 48]\n" in header and " * for by = 2, more = 3:\n" in header
    by = np.array(1)
    assert library([x], given=[Given(None, None, 8), Given(b"by", by.ctypes.data, 8)]) != [] and library.code == 0
    assert library([x], given=[Given(None, None, 8)]) == [] and (library.code, library.unmatched_input) == (6, b"by")
    assert "call.selectors = selectors" in header and "DLC_MODEL_VALUES_BYTES" in header


def test_selection_by_shape(tmp_path: Path) -> None:
    library, a = Library(by_shape(), tmp_path / "shapes.so"), np.array(2, np.float32)
    library.model = dlc.jit(lambda x, a: x).lower(X[:3, :48], a).compile()
    for rows, unmatched_input in ((1, None), (2, b"x"), (3, None)):
        shape = (ctypes.c_int64 * 2)(rows, 48)
        x = X[:3, :48] * (np.arange(3) < rows)[:, None]
        found = library([x.copy(), a], given=[Given(b"x", None, 0, shape, 2)])
        assert library.unmatched_input == unmatched_input
        if unmatched_input is None:
            np.testing.assert_array_equal(found[0][:rows], by_shape()(x[:rows], a)["y"])
    # A shared weight is stored once.
    assert (tmp_path / "shapes.so").read_bytes().count(W[0].tobytes()) == 1


def test_selection_by_range(tmp_path: Path) -> None:
    """Each program serves a range of sizes; without a selected shape, the first one runs."""
    served()(X[:4, :4].copy())
    library = Library(served(), tmp_path / "ranges.so")
    for rows, selected in ((6, 6), (6, None), (4, 4), (2, 3)):
        x = X[:rows, :4].copy()
        given = [] if selected is None else [Given(b"x", None, 0, (ctypes.c_int64 * 2)(selected, 4), 2)]
        same(library([x], given=given), served()(x))
    for rows, selected, code in ((4, 6, 1), (4, 1, 6)):
        assert library([X[:rows, :4].copy()], given=[Given(b"x", None, 0, (ctypes.c_int64 * 2)(selected, 4), 2)]) == []
        assert library.code == code
    header = (tmp_path / "ranges.h").read_text()
    assert 'dlc_selector selectors[] = {{"x", NULL, 0, shape, 2}};' in header
    assert " * for x: n in 5..:\n" in header and " * for x: n in 2..4:\n" in header


def test_unsupported_models_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UnsupportedError, match=r"programs for a CPU; .*data-dependent sizes"):
        write_library(several(), tmp_path / "m.so")
    with pytest.raises(UnsupportedError, match=r"programs for a CPU; .*another target"):
        write_library(dlc.jit(lambda x: x + 1, target="reference").lower(np.ones(2)).compile(), tmp_path / "m.so")
    decided = SpecializedModel("m", layer().inputs, layer().outputs).model()
    with pytest.raises(UnsupportedError, match=r"programs for a CPU; .*the shapes of its inputs: specify them \(--shape"):
        write_library(decided, tmp_path / "m.so")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_the_command_line_writes_a_header_beside_it(tmp_path: Path, suffix: str) -> None:
    model = tmp_path / "saved.mlir"
    model.write_text(
        'func.func @main(%x: tensor<4xf32> {dl.name = "x"}) -> tensor<4xf32> {\n'
        "  %y = dl.exp %x : (tensor<4xf32>) -> tensor<4xf32>\n  func.return %y : tensor<4xf32>\n}"
    )
    done = CliRunner().invoke(main, ["compile", str(model), "-o", str(tmp_path / f"a-b{suffix}")])
    assert done.exit_code == 0, done.output
    header = (tmp_path / "a-b.h").read_text()
    assert "int64_t dlc_model_a_b(dlc_call *call);" in header and "input 0   x: float32[4]" in header


def test_a_jitted_function_with_its_gradient(tmp_path: Path) -> None:
    function = dlc.jit(dlc.value_and_grad(lambda x: (x**4 - x**2).sum()))
    x = np.linspace(-1, 1, 5)
    function.save(tmp_path / "energy.so", x)
    assert "output 1  result[1]: float64[5]" in (tmp_path / "energy.h").read_text()
    value, gradient = np.empty(()), np.empty(5)
    entry = ctypes.CDLL(str(tmp_path / "energy.so")).dlc_model_energy
    call = Call(inputs=pointers([x]), outputs=pointers([value, gradient]))
    assert entry(ctypes.byref(call)) == 0
    memory = aligned_empty((max(call.required_bytes, 1),), np.dtype(np.uint8))
    call.memory, call.bytes = memory.ctypes.data, memory.nbytes
    assert entry(ctypes.byref(call)) == 0
    np.testing.assert_allclose(gradient, 4 * x**3 - 2 * x)
    assert value == pytest.approx((x**4 - x**2).sum())
    function.save(tmp_path / "energy.dlc", x)
    np.testing.assert_array_equal(dlc.load(tmp_path / "energy.dlc")(x=x)["result[1]"], gradient)
    with pytest.raises(DlcError, match=r"energy\.txt: expected a name that ends in \.dlc"):
        function.save(tmp_path / "energy.txt", x)


def test_other_names_are_refused(tmp_path: Path) -> None:
    refused = CliRunner().invoke(main, ["compile", "m.onnx", "-o", str(tmp_path / "m.dll")])
    assert refused.exit_code == 2


def test_a_model_without_weights(tmp_path: Path) -> None:
    library = Library(dlc.jit(lambda x: x + x).lower(X).compile(), tmp_path / "twice.so")
    same(library([X]), library.model(X))


N, M = Dim.symbol("N"), Dim.symbol("M")
# Large enough that negative terms give a valid size.
MORE = 1 << 50
POLYNOMIALS: list[Size] = [
    MORE + size
    for size in (
        7,
        N,
        N - M,
        2 * N * M - 3,
        N // 2,
        (N + 5) // 3 * M,
        (N - 9) // 4,
        (M * M - N) // (N + 1),
        -N // 3 + M,
        -M * N * N,
    )
]


@pytest.fixture(scope="module")
def sizes(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Return the output shapes that a program without ops computes for sizes, or None if one is negative."""
    i64 = np.dtype(np.int64)
    outputs = tuple(TensorInfo(f"y{k}", (size,), i64) for k, size in enumerate(POLYNOMIALS))
    host = HostProgram((TensorInfo("x", (N, M), i64),), outputs, (), (), ranges={"N": SizeRange(1, 1 << 20)})
    model = Artifact("sizes", CPU_LEVELS["cpu:generic"], host, (), {}, runtime_object()).model()
    library = Library(model, tmp_path_factory.mktemp("library") / "sizes.so")

    def call(n: int, m: int) -> list[int] | None:
        shapes = (ctypes.c_int64 * (2 + len(outputs)))()
        code = library.function(Call(sizes=(ctypes.c_int64 * 2)(n, m), shapes=shapes))
        assert code in (0, 1)
        return None if code else shapes[2:]

    return call


@pytest.mark.parametrize("m", [0, 1, 3, 50, 1 << 39])
@pytest.mark.parametrize("n", [0, 1, 2, 9, 10, 41, 1 << 20, (1 << 20) + 1])
def test_size_expressions(sizes: Any, n: int, m: int) -> None:
    expected = [int(substitute(size, {"N": n, "M": m})) for size in POLYNOMIALS]
    fit = 1 <= n <= 1 << 20 and min(expected) >= 0 and max(*expected, m * n * n) < 1 << 63
    assert sizes(n, m) == (expected if fit else None)
