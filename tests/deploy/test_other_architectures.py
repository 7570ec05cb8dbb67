"""Models for other architectures in an emulator, if it and a cross compiler are available."""

from __future__ import annotations

import shutil
import struct
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from numpy.typing import NDArray

import dlc
import dlc.numpy as dnp
from dlc import nn
from dlc.cli import main
from dlc.deploy import HEADER
from dlc.runtime.models.model import Model
from tests.deploy.models import W, X, layer, loops, update
from tests.deploy.test_header import STRICT, link, ran
from tests.models.skeletons import deviation, path_of, recordings


@dataclass(frozen=True)
class Elsewhere:
    """An architecture: its best target, and how its programs are compiled and run here."""

    base: str
    best: str
    machine: int
    compiler: str
    emulator: tuple[str, ...]
    poor: tuple[str, ...]  # a processor that lacks the features of `best`

    def needed(self) -> None:
        for program in (self.compiler, self.emulator[0]):
            if shutil.which(program) is None:
                pytest.skip(f"no {program}")


ARM, RISC_V = "qemu-aarch64-static", "qemu-riscv64-static"
ALL = {
    "aarch64": Elsewhere(
        *("cpu:aarch64", "cpu:aarch64_i8mm", 183, "aarch64-linux-gnu-gcc"), (ARM, "-cpu", "max"), (ARM, "-cpu", "cortex-a57")
    ),
    "riscv64": Elsewhere(
        *("cpu:riscv64", "cpu:riscv64", 243, "riscv64-linux-gnu-gcc"), (RISC_V, "-cpu", "rv64,v=true,vext_spec=v1.0"), (RISC_V,)
    ),
}


@pytest.fixture(scope="module", params=ALL)
def there(request: pytest.FixtureRequest) -> Elsewhere:
    return ALL[request.param]


@pytest.fixture(scope="module")
def folder(there: Elsewhere, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the harness, statically linked."""
    there.needed()
    folder = tmp_path_factory.mktemp("elsewhere")
    harness = str(Path(__file__).with_name("harness.c"))
    subprocess.run([there.compiler, "-std=c99", "-static", *STRICT, harness, "-o", str(folder / "harness")], check=True)
    return folder


def agree(
    there: Elsewhere,
    folder: Path,
    model: Model,
    inputs: Sequence[NDArray[Any] | None],
    want: Mapping[str, Any],
    threads: int = 1,
) -> None:
    """Check that the model computes the expected results there."""
    model.save(folder / "m.dlc")
    got, at = ran(folder, "run", model, "m", inputs, threads, there.emulator), 0
    assert isinstance(got, bytes), got
    for name, array in ((name, np.asarray(array)) for name, array in want.items()):
        found = np.frombuffer(got, array.dtype, array.size, at).reshape(array.shape)
        assert deviation(found, array) <= 1e-4, name
        at += array.nbytes
    assert at == len(got)


def test_multithreading(there: Elsewhere, folder: Path) -> None:
    for threads, b in ((1, W[1]), (3, None)):
        agree(there, folder, layer(there.base), [X, b], layer()(X) if b is None else layer()(X, b), threads)


def test_symbolic_sizes_loops_and_donated_inputs(there: Elsewhere, folder: Path) -> None:
    for size in ((1, 1), (0, 3), (40, 5)):
        x = np.random.default_rng(0).standard_normal((*size, 4), np.float32)
        agree(there, folder, loops(there.base), [x], loops()(x))
    agree(there, folder, update(there.base), [X, X[::-1].copy()], update()(X.copy(), X[::-1].copy()))


def residual(x: Any) -> Any:
    """A ResNet block with the layers around it."""
    draw = np.random.default_rng(0)
    first, *rest = (draw.standard_normal((3, 3, c, 16), np.float32) / np.float32(np.sqrt(9 * c)) for c in (3, 16, 16))
    scale, shift, mean = draw.standard_normal((3, 16), np.float32)
    x = nn.max_pool(nn.relu(nn.conv(x, first, padding="same")), 2)
    y, *_ = nn.batch_norm(nn.conv(x, rest[0], padding="same"), scale, shift, mean, scale * scale + 1, training=False)
    return dnp.mean(nn.relu(nn.conv(nn.relu(y), rest[1], padding="same") + x), (1, 2)) @ W[:16]


def many(x: Any, i: Any, h: Any, d: Any) -> Any:
    """Ops that differ between processors: functions, extrema, conversions, comparisons, ragged rows."""
    size = dnp.abs(x)
    functions = dnp.exp(-size) + dnp.log(size) + dnp.tanh(x) + nn.gelu(x) + dnp.sin(x) + dnp.floor(x) + dnp.round(x)
    return (
        *(functions + dnp.sqrt(size), h * h + h, (x * 1000).astype(np.float16), dnp.maximum(x, d) + dnp.exp(d), i // 7 - i % 7),
        *((i > 50) & (x[0] > 0), dnp.where(x > 0, x, -1.0) + i.astype(np.float32), i.astype(np.uint8) >> 2, dnp.sum(d, 1)),
        *(dnp.argmax(x, 1), dnp.cumsum(x, 1), dnp.sort(x, 1), dnp.take(x.T, i % 5, 1), nn.softmax(x)),
    )


def integers(x: Any, d: Any) -> Any:
    """Float-to-integer conversions, including saturation."""
    return x.astype(np.int8), (d * 1e9).astype(np.int32), (x * 1e30).astype(np.int64)


def bytes_by_bytes(x: Any) -> Any:
    """An int8 product for which there are instructions."""
    weights = np.random.default_rng(4).integers(-127, 127, (64, 48), np.int8, endpoint=True)
    return x.astype(np.int32) @ weights.astype(np.int32)


DRAW = np.random.default_rng(2)
ROWS = 3 * DRAW.standard_normal((5, 37), np.float32)
FUNCTIONS = {
    "convolutions": (residual, [DRAW.standard_normal((1, 20, 20, 3), np.float32)]),
    "operations": (many, [ROWS, DRAW.integers(0, 100, 37), (ROWS / 2).astype(np.float16), DRAW.standard_normal((5, 37))]),
    "integers": (integers, [ROWS, DRAW.standard_normal((5, 37))]),
    "bytes": (bytes_by_bytes, [DRAW.integers(0, 255, (24, 64), np.uint8, endpoint=True)]),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions(there: Elsewhere, folder: Path, name: str) -> None:
    if name == "integers" and there.emulator[0] == RISC_V:
        pytest.skip("QEMU 7.2 ends at a vector of floats that become integers (vfcvt.rtz)")
    function, inputs = FUNCTIONS[name]
    model = dlc.jit(function, target=there.best).lower(*inputs).compile()
    reference = dlc.jit(function, target="reference").lower(*inputs).compile()
    agree(there, folder, model, inputs, reference(*inputs))


@pytest.mark.parametrize("there", ["aarch64"], indirect=True)
def test_image_model(there: Elsewhere, folder: Path) -> None:
    """A pretrained face detector with two kinds of convolution, pooling and channel padding."""
    model = dlc.compile_model(path_of("blazeface_front"), target=there.base)
    feeds, want = next(iter(recordings("blazeface_front")))
    agree(there, folder, model, [feeds[info.name] for info in model.inputs], want)


@pytest.mark.parametrize("there", ["aarch64"], indirect=True)
def test_a_decoder_with_a_cache_of_any_length(there: Elsewhere, folder: Path) -> None:
    model = dlc.compile_model(path_of("gpt2_tiny_decode_kv_dyn"), target=there.base)
    for feeds, want in recordings("gpt2_tiny_decode_kv_dyn"):
        agree(there, folder, model, [feeds[info.name] for info in model.inputs], want)


def test_a_processor_that_lacks_a_feature_and_one_of_another_kind(there: Elsewhere, folder: Path) -> None:
    layer(there.best).save(folder / "best.dlc")
    output = ran(folder, "run", layer(), "best", [X, None], 1, there.poor)
    assert "best.dlc: compiled for a processor with" in output and "which this one lacks" in output
    layer().save(folder / "here.dlc")
    assert f"machine 62 of ELF files, this is {there.machine}" in ran(
        folder, "run", layer(), "here", [X, None], 1, there.emulator
    )


def test_libraries_are_linked(there: Elsewhere, tmp_path: Path) -> None:
    there.needed()
    link(tmp_path, ("one.o", "two.a", "three.o"), [there.compiler, "-static", f"-I{HEADER.parent}"], there.base)
    subprocess.run([*there.emulator, "./m"], cwd=tmp_path, check=True)


def test_the_command_line(there: Elsewhere, tmp_path: Path) -> None:
    """It writes files for that machine, and refuses to run them on this one."""
    model = tmp_path / "saved.mlir"
    model.write_text(
        'func.func @main(%x: tensor<4xf32> {dl.name = "x"}) -> tensor<4xf32> {\n'
        "  %y = dl.exp %x : (tensor<4xf32>) -> tensor<4xf32>\n  func.return %y : tensor<4xf32>\n}"
    )
    command = ["compile", str(model), "--target", there.base, "-o"]
    done = CliRunner().invoke(main, [*command, str(tmp_path / "m.so")])
    assert done.exit_code == 0 and "does not run on this machine" in done.output, done.output
    assert struct.unpack_from("<HH", (tmp_path / "m.so").read_bytes(), 16) == (3, there.machine)
    assert CliRunner().invoke(main, [*command, str(tmp_path / "m.dlc")]).exit_code == 0
    refused = CliRunner().invoke(main, ["run", str(tmp_path / "m.dlc")])
    assert refused.exit_code == 1 and f"this machine is x86_64 and cannot run code for {there.base}" in refused.output
