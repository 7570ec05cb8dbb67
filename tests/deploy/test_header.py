"""dlc.h: models in a C program, if a C compiler is available."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import pytest
from click.testing import CliRunner
from numpy.typing import NDArray

import dlc
from dlc.cli import main
from dlc.deploy import HEADER, write_library
from dlc.distributed.partition_spec import P
from dlc.runtime.cpu import program_image
from dlc.runtime.cpu.artifact import Artifact
from dlc.runtime.models.io_conversion import ConvertedModel
from dlc.runtime.models.model import Model
from dlc.runtime.saving.container import PREFIX, VERSION, Container
from dlc.value_types import IOSignature
from tests.deploy.mesh_model import on_mesh
from tests.deploy.models import W, X, by_shape, failing, layer, loops, multiplied, printing, served, several, sizes_of, update
from tests.shapes import test_data_dependent_sizes as counts
from tests.targets import SHORT

needs_cc = pytest.mark.skipif(shutil.which("cc") is None, reason="no compiler of C is there")
STRICT = ["-O1", "-pthread", "-Wall", "-Wextra", "-pedantic", "-Werror", f"-I{HEADER.parent}"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the harness and model files; returned together with the models in Python."""
    folder = tmp_path_factory.mktemp("header")
    harness = Path(__file__).with_name("harness.c")
    subprocess.run(["cc", "-std=c99", *STRICT, "-g", str(harness), "-o", str(folder / "harness")], check=True)
    return folder


@pytest.fixture(scope="module")
def models(folder: Path) -> dict[str, Model]:
    made = {"layer": layer(), "loops": loops(), "update": update(), "failing": failing(), "printing": printing()}
    made |= {"multiplied": multiplied(), "by_shape": by_shape(), "on_mesh": on_mesh()}
    for name, model in made.items():
        model.save(folder / f"{name}.dlc")
    return made


def ran(
    folder: Path,
    mode: str,
    model: Model,
    name: str,
    inputs: Sequence[NDArray[Any] | None],
    threads: int = 1,
    emulator: Sequence[str] = (),
    of: Sequence[str] = (),
) -> Any:
    """Return the outputs, or the message of the program; `of` selects one of several programs."""
    given = ["-" if array is None else str(folder / f"{k}.in") for k, array in enumerate(inputs)]
    for path, array in zip(given, inputs, strict=True):
        if array is not None:
            array.tofile(path)
    sizes = map(str, sizes_of(model, inputs)) if inputs else ()
    command = [*emulator, str(folder / "harness"), mode, str(folder / f"{name}.dlc"), str(threads), str(folder / "out")]
    done = subprocess.run([*command, *given, "--", *sizes, "--", *of], capture_output=True, text=True)
    assert done.returncode in (0, 1), done
    if done.returncode:
        return done.stdout.strip()
    return (folder / "out").read_bytes()


def expected(model: Model, inputs: Sequence[NDArray[Any] | None]) -> bytes:
    given = {info.name: array.copy() for info, array in zip(model.inputs, inputs, strict=True) if array is not None}
    return b"".join(np.asarray(result).tobytes() for result in model(given).values())


def test_the_header_and_the_compiler_have_the_same_fields() -> None:
    text = HEADER.read_text()
    match = re.search(r"typedef struct \{\n    unsigned char entry\[16\], magic\[8\];\n(.*?)\} dlc__image;", text, re.DOTALL)
    assert match is not None
    assert tuple(re.findall(r"\w+", match[1].replace("int64_t", ""))) == program_image.FIELDS
    assert f"DLC__VERSION = {VERSION}," in text


@needs_cc
@pytest.mark.parametrize("compiler", [["cc", "-std=c99"], ["cc", "-std=c11"], ["c++", "-x", "c++", "-std=c++17"]])
def test_it_is_plain_c_and_cpp(compiler: list[str], tmp_path: Path) -> None:
    if shutil.which(compiler[0]) is None:
        pytest.skip(f"no {compiler[0]}")
    (tmp_path / "m.c").write_text(
        '#define DLC_IMPLEMENTATION\n#include "dlc.h"\n#include "dlc.h"\nint main(void) { return 0; }\n'
    )
    subprocess.run([*compiler, *STRICT, "-fsyntax-only", str(tmp_path / "m.c")], check=True)


@needs_cc
@pytest.mark.parametrize("mode", ["run", "memory", "pool"])
@pytest.mark.parametrize("threads", [1, 3])
def test_a_model_computes_the_same(folder: Path, models: dict[str, Model], mode: str, threads: int) -> None:
    for inputs in ([X, W[1]], [X, None]):
        assert ran(folder, mode, models["layer"], "layer", inputs, threads) == expected(models["layer"], inputs)


@needs_cc
@pytest.mark.parametrize("size", [(1, 1), (0, 3), (2, 7), (40, 5)])
def test_symbolic_sizes_loops_and_branches(folder: Path, models: dict[str, Model], size: tuple[int, int]) -> None:
    inputs = [np.random.default_rng(0).standard_normal((*size, 4)).astype(np.float32)]
    assert ran(folder, "run", models["loops"], "loops", inputs) == expected(models["loops"], inputs)


@needs_cc
@pytest.mark.parametrize("text", [counts.ROWS, counts.LOOP], ids=["rows", "loop"])
def test_data_dependent_sizes(folder: Path, text: str) -> None:
    model = counts.compiled(text, "cpu")
    model.save(folder / "counts.dlc")
    for n in (5, 0, 300):
        inputs = [3 * (counts.rows(n) if text is counts.ROWS else counts.rows(n)[:, 0].copy())]
        assert ran(folder, "run", model, "counts", inputs, 3) == expected(model, inputs)


@needs_cc
def test_default_program_of_a_specialized_model(folder: Path) -> None:
    served().save(folder / "served.dlc")
    inputs = [X[:6, :4].copy()]
    assert ran(folder, "run", served(), "served", inputs) == expected(served(), inputs)
    assert "node 'y' (Slice) requires n >= 5; got n = 4" in ran(folder, "run", served(), "served", [X[:4, :4].copy()])
    loaded = dlc.load(folder / "served.dlc")
    assert expected(loaded, inputs) == expected(served(), inputs)


@needs_cc
def test_violated_guards_are_named(folder: Path) -> None:
    header = '<ir_version: 8, opset_import: ["" : 18]> g '
    reshape = "(float[N,3] x) => (float[A,B] y) <int64[2] k = {-1,2}> { [flat] y = Reshape(x, k) }"
    model = dlc.compile_model(onnx.parser.parse_model(header + reshape), num_threads=1, cache=False)
    model.save(folder / "guarded.dlc")
    x = np.arange(24, dtype=np.float32).reshape(8, 3)
    assert ran(folder, "run", model, "guarded", [x]) == x.tobytes()
    message = "node 'flat' (Reshape) requires N % 2 == 0; got N = 7"
    assert ran(folder, "run", model, "guarded", [x[:7]]) == message


@needs_cc
def test_data_dependent_sizes_outside_of_the_domain_are_named(folder: Path) -> None:
    """The number of nonzero elements must be that of all elements."""
    text = """<ir_version: 8, opset_import: ["" : 18]> g (float[N] x) => (float[1,N] y) {
        k = NonZero(x) c = Cast<to = 1>(k) [sum] y = Add(x, c) }"""
    model = dlc.compile_model(onnx.parser.parse_model(text), num_threads=1, cache=False)
    model.save(folder / "counted.dlc")
    x = np.float32([1, 2, 3, 4])
    assert ran(folder, "run", model, "counted", [x]) == expected(model, [x])
    message = ran(folder, "run", model, "counted", [x * np.float32([0, 1, 1, 1])])
    assert message == "node 'k': dl.nonzero requires nonzero_0 == N; got N = 4"


@needs_cc
def test_half_precision(folder: Path) -> None:
    x, y = X[:3].astype(ml_dtypes.bfloat16), X[:3].astype(np.float16)
    model = dlc.jit(lambda x, y: (x * 2 + 1, y.astype(x.dtype) - x, -y)).lower(x, y).compile()
    model.save(folder / "short_floats.dlc")
    assert ran(folder, "run", model, "short_floats", [x, y]) == expected(model, [x, y])
    assert [info.dtype for info in model.outputs] == [x.dtype, x.dtype, y.dtype]


@needs_cc
def test_donated_inputs(folder: Path, models: dict[str, Model]) -> None:
    inputs = [X, X[::-1].copy()]
    assert ran(folder, "run", models["update"], "update", inputs) == expected(models["update"], inputs)
    assert ran(folder, "run", models["update"], "update", [None, X]) == "input p is missing"


@needs_cc
def test_error_messages(folder: Path, models: dict[str, Model]) -> None:
    assert ran(folder, "run", models["failing"], "failing", [np.int64([0, -5, 7])]) == "{} at -5 of 7"
    assert "which needs Python" in ran(folder, "run", models["printing"], "printing", [np.int64([0, -5, 7])])
    assert ran(folder, "run", models["layer"], "layer", [None, W[0]]) == "input x is missing"
    assert "No such file" in ran(folder, "run", models["layer"], "missing", [])
    several().save(folder / "several.dlc")
    assert "specialized for data-dependent sizes" in ran(folder, "run", models["layer"], "several", [])
    ConvertedModel(models["layer"], IOSignature((), (), ())).save(folder / "text.dlc")
    assert "strings, sequences or optionals" in ran(folder, "run", models["layer"], "text", [])
    data = bytearray((folder / "layer.dlc").read_bytes())
    data[8] += 1
    (folder / "newer.dlc").write_bytes(data)
    assert f"format {VERSION + 1}, this dlc.h reads {VERSION}" in ran(folder, "run", models["layer"], "newer", [])
    (folder / "none.dlc").write_bytes(b"")
    assert "not a model" in ran(folder, "run", models["layer"], "none", [])
    (folder / "short.dlc").write_bytes(data[:100])
    output = ran(folder, "run", models["layer"], "short", [])
    assert "short.dlc: " in str(output)


@needs_cc
def test_selection_by_value(folder: Path, models: dict[str, Model]) -> None:
    x, numbers = X[:2, :48].copy(), {number: np.int64(number) for number in (1, 2, 3)}
    program = dlc.jit(lambda x: x).lower(x).compile()
    for number, value in numbers.items():
        value.tofile(folder / f"{number}.in")

    def picked(**given: int) -> Any:
        of = [f"{name}={folder / f'{n}.in'}" for name, n in given.items()]
        return ran(folder, "run", program, "multiplied", [x], of=of)

    for by, more in ((1, 3), (2, 2), (2, 3)):
        assert picked(more=more, by=by) == expected(multiplied(), [x, numbers[by], numbers[more]])
    assert "2 programs, by the value of by: none matches `selectors`" in picked(by=3)
    assert "2 programs, by the value of more: set it in `selectors` of dlc_options" in picked(by=2)
    loaded = dlc.load(folder / "multiplied.dlc")
    assert expected(loaded, [x, numbers[2], numbers[3]]) == (6 * x).tobytes()

    program, a = dlc.jit(lambda x, a: x).lower(x, W[0, 0]).compile(), np.array(2, np.float32)
    for rows in (3, 1):
        x = X[:rows, :48].copy()
        assert ran(folder, "run", program, "by_shape", [x, a], of=[f"x:{rows},48"]) == expected(by_shape(), [x, a])
    assert "by the shape of x: none matches" in ran(folder, "run", program, "by_shape", [x, a], of=["x:2,48"])


@needs_cc
def test_selected_program_of_a_specialized_model(folder: Path) -> None:
    served()(X[:4, :4].copy())
    served().save(folder / "sizes.dlc")
    four = [X[:4, :4].copy()]
    for selected in ("x:4,4", "x:2,4"):
        assert ran(folder, "run", served(), "sizes", four, of=[selected]) == expected(served(), four)
    for first in ((), ("x:6,4",)):
        assert "node 'y' (Slice) requires n >= 5; got n = 4" in ran(folder, "run", served(), "sizes", four, of=first)
    assert "by the shape of x: none matches" in ran(folder, "run", served(), "sizes", four, of=["x:1,4"])
    assert expected(dlc.load(folder / "sizes.dlc"), four) == expected(served(), four)


@needs_cc
def test_a_processor_that_lacks_a_feature(folder: Path, models: dict[str, Model]) -> None:
    artifact = models["layer"].artifact
    assert isinstance(artifact, Artifact)
    target = replace(artifact.target, features=(*artifact.target.features, "amx9"))
    replace(artifact, target=target).save(folder / "other.dlc")
    assert "compiled for a processor with amx9" in ran(folder, "run", models["layer"], "other", [])


@needs_cc
def test_a_model_for_another_device(folder: Path, models: dict[str, Model]) -> None:
    data = (folder / "layer.dlc").read_bytes()
    (folder / "device.dlc").write_bytes(PREFIX.pack(*PREFIX.unpack_from(data)[:-1], -3) + data[PREFIX.size :])
    assert "compiled for an OpenCL device" in ran(folder, "run", models["layer"], "device", [])


@needs_cc
def test_routes_between_ranks_are_checked(folder: Path, models: dict[str, Model], monkeypatch: pytest.MonkeyPatch) -> None:
    """Positions beyond the group, and repeated sources and targets, are found when the file is opened."""
    mesh = dlc.make_mesh({"ring": 4})
    moved = dlc.jit(mesh=mesh)(
        dlc.shard_map(lambda x: dlc.lax.ppermute(x, "ring", [(0, 1)]), in_specs=P("ring"), out_specs=P("ring"))
    )
    moved.save(folder / "moved.dlc", X[:4])
    assert "compiled for the mesh ring=4: set `collectives`" in ran(folder, "run", models["layer"], "moved", [])
    for routes in ([(0, 4)], [(0, 1), (2, 1)], [(2, 0), (2, 1)]):
        monkeypatch.setattr(program_image, "permute_routes", lambda pairs, routes=routes: routes if pairs else [])
        moved.save(folder / "moved.dlc", X[:4])
        assert "damaged: copy or compile" in ran(folder, "rank", models["layer"], "moved", []), routes


@needs_cc
@pytest.mark.parametrize(("name", "is_collective"), [("layer", False), ("on_mesh", True)])
def test_unknown_dtypes(
    folder: Path, models: dict[str, Model], monkeypatch: pytest.MonkeyPatch, name: str, is_collective: bool
) -> None:
    """The dtype of a tensor, or of a collective, whose operands have no names."""
    monkeypatch.setattr(program_image, "_element", lambda info: (27 if is_collective == (not info.name) else 1, 4))
    models[name].save(folder / "dtypes.dlc")
    assert "damaged: copy or compile" in ran(folder, "run", models["layer"], "dtypes", [])


@needs_cc
def test_every_corrupted_byte_is_detected(folder: Path, models: dict[str, Model]) -> None:
    path = folder / "layer.dlc"
    container = Container.read(path)
    begin = path.stat().st_size - len(container.data)
    # A C program ignores the header and the padding between sections.
    read = [range(begin + at, begin + at + size) for at, size, _ in container.sections[1:]]
    done = subprocess.run(
        [folder / "harness", "flip", path, str(read[0].start), "37"], capture_output=True, text=True, check=True
    )
    accepted = list(map(int, done.stdout.split()))
    assert not [at for at in accepted if any(at in part for part in read) or -read[-1].stop < at < 0]


@needs_cc
@pytest.mark.parametrize("name", ["layer", "loops", "failing", "multiplied", "on_mesh"])
def test_inconsistent_programs_are_refused(folder: Path, models: dict[str, Model], name: str) -> None:
    """A program with a valid checksum but wrong contents is refused, or accesses only its own memory."""
    command = [folder / "harness", "mutate", folder / f"{name}.dlc", "3000", "7"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert 0 < int(done.stdout) < 3000


@needs_cc
def test_missing_arguments_are_reported(folder: Path, models: dict[str, Model]) -> None:
    done = subprocess.run([folder / "harness", "arguments", folder / "layer.dlc"], capture_output=True, text=True, check=True)
    assert done.stdout == "0\n"


@needs_cc
def test_fork(folder: Path, models: dict[str, Model]) -> None:
    subprocess.run([folder / "harness", "fork", folder / "layer.dlc", "3", "-"], check=True, timeout=60)


@needs_cc
def test_threads_share_models_and_a_pool(folder: Path, models: dict[str, Model]) -> None:
    dlc.jit(lambda x: dlc.numpy.exp(-x * x)).lower(np.zeros(5000, np.float32)).compile().save(folder / "second.dlc")
    command = [folder / "harness", "threads", folder / "layer.dlc", folder / "second.dlc", "400"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    wrong, pages, allocations = map(int, re.findall(r"-?\d+", done.stdout))
    # One context with its memory per thread and model, for eight threads and two models; calls allocate nothing.
    assert (wrong, allocations) == (0, 8 * 2 * 2) and pages < 1000


LINKED = """
#define DLC_IMPLEMENTATION
#include "dlc.h"
#include "one.h"
#include "two.h"
#include "three.h"

/* One of several programs, by the values of `by` and `more`. */
static int several(void)
{
    static float x[2 * 48] = {1, 2, 3, 4}, y[2 * 48];
    static _Alignas(64) char memory[DLC_MODEL_THREE_BYTES];
    int64_t by = 2, more = 3;
    dlc_selector selectors[] = {{"more", &more, sizeof more, NULL, 0}, {"by", &by, sizeof by, NULL, 0}};
    const void *inputs[] = {x};
    void *outputs[] = {y};
    dlc_model *model;
    dlc_context *context;
    dlc_options options = {0};
    dlc_call call = {0};
    call.inputs = inputs, call.outputs = outputs, call.memory = memory, call.bytes = sizeof memory;
    call.selectors = selectors, call.selector_count = 2;
    if (dlc_model_three(&call) || y[3] != 24) return 4;
    more = 2;
    if (dlc_model_three(&call) || y[3] != 16) return 5;
    options.selectors = selectors, options.selector_count = 2;
    if (dlc_open_linked(dlc_model_three, &options, &model) || dlc_context_create(model, NULL, &context)) return 6;
    y[3] = 0;
    if (dlc_run(context, inputs, outputs) || y[3] != 16) return 7;
    dlc_context_destroy(context);
    dlc_close(model);
    more = 4;
    if (dlc_model_three(&call) != DLC_NO_PROGRAM || strcmp(call.unmatched_input, "more")) return 8;
    if (dlc_open_linked(dlc_model_three, &options, &model) != DLC_NO_PROGRAM) return 9;
    return 0;
}

int main(void)
{
    static float x[4] = {1, 2, 3, 4}, y[4];
    _Alignas(64) static char memory[DLC_MODEL_ONE_BYTES];
    const void *inputs[] = {x};
    void *outputs[] = {y};
    dlc_model *model;
    dlc_context *context;
    dlc_call call = {0};
    call.inputs = inputs, call.outputs = outputs, call.memory = memory, call.bytes = sizeof memory;
    if (dlc_model_one(&call) || y[3] != 40) return 1;
    if (dlc_open_linked(dlc_model_two, NULL, &model) || dlc_context_create(model, NULL, &context)) return 2;
    if (dlc_run(context, inputs, outputs) || y[3] != 80) return 3;
    dlc_context_destroy(context);
    dlc_close(model);
    return several();
}
"""


def link(folder: Path, names: Sequence[str], compiler: Sequence[str], target: str = "cpu") -> None:
    """Build a program `m` from LINKED and libraries: `one` and `two` have one program each, `three` several."""
    for name, factor in zip(names, (10, 20), strict=False):
        write_library(dlc.jit(lambda x, f=factor: x * f, target=target).lower(np.ones(4, np.float32)).compile(), folder / name)
    write_library(multiplied(target), folder / names[2])
    (folder / "m.c").write_text(LINKED)
    subprocess.run([*compiler, "-std=c11", "-pthread", "-Wall", "-Werror", "m.c", *names, "-o", "m"], cwd=folder, check=True)


@needs_cc
@pytest.mark.parametrize("names", [("one.o", "two.a", "three.so"), ("one.so", "two.o", "three.a")])
def test_models_are_linked_to_a_program(tmp_path: Path, names: Sequence[str]) -> None:
    assert CliRunner().invoke(main, ["header", "-o", str(tmp_path / "dlc.h")]).exit_code == 0
    # Without position-independent code, a function's address may be that of a PLT stub.
    link(tmp_path, names, ["cc", "-no-pie", "-fno-pie", "-Wl,-rpath,."])
    subprocess.run(["./m"], cwd=tmp_path, check=True)


@needs_cc
def test_valgrind_finds_no_errors(folder: Path) -> None:
    """For a target that valgrind supports: without AVX-512."""
    if (valgrind := shutil.which("valgrind")) is None:
        pytest.skip("valgrind is not there")
    model = loops(SHORT)
    model.save(folder / "checked.dlc")
    inputs = [np.ones((2, 3, 4), np.float32)]
    inputs[0].tofile(folder / "v.in")
    command = [folder / "harness", "run", folder / "checked.dlc", "2", folder / "out", folder / "v.in", "--", "2", "3"]
    checked = [valgrind, "-q", "--leak-check=full", "--show-leak-kinds=all", "--error-exitcode=9"]
    subprocess.run([*checked, *command], check=True)
    assert (folder / "out").read_bytes() == expected(model, inputs)
