"""Dumps of real models: small, complete, runnable from every stage, and read by MLIR itself."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from dlc.compiler import Program, compile, load_program
from dlc.dialects.registry import make_context
from dlc.instrument.dump import NEXT
from dlc.ir import ModuleOp, parse_module
from dlc.options import Options
from tests.mlir import accepted_by_mlir, needs_mlir
from tests.models.skeletons import path_of, recordings

STAGES = ("dl", "fusion", "linalg", "tiling", "loops", "host")
MEGABYTE = 1 << 20

Dump = tuple[Path, list[NDArray], dict[str, NDArray]]


def program_of(name: str) -> tuple[Program, list[NDArray]]:
    """Return a model with static shapes, and inputs for it."""
    feeds, _ = next(recordings(name))
    return load_program(path_of(name), {n: a.shape for n, a in feeds.items()}), list(feeds.values())


@pytest.fixture(scope="module", params=["mnist_cnn", "magika_v3_3"])
def dump(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Dump:
    program, arrays = program_of(request.param)
    folder = tmp_path_factory.mktemp(request.param) / "ir"
    model = compile(program, options=Options(dump_ir=folder))
    return folder, arrays, dict(model(*arrays))


def test_dump_is_small_without_weights(dump: Dump) -> None:
    folder, _, _ = dump
    assert sum(p.stat().st_size for p in folder.rglob("*") if p.is_file() and p.suffix != ".npy") < 10 * MEGABYTE


def test_the_index_lists_every_pass(dump: Dump) -> None:
    folder, _, _ = dump
    index = (folder / "index.md").read_text()
    files = {p.name for p in folder.glob("*.mlir")}
    assert set(re.findall(r"\]\((.+?)\)", index)) == files
    assert {f"stage-{s}.mlir" for s in STAGES} <= files
    first = parse_module(make_context(), (folder / "00-start.mlir").read_text())
    assert all(f"`{name}" in index for name in re.findall(r"[\w-]+(?=[,{]|$)", first.attributes[NEXT].data) if "-" in name)


@pytest.mark.parametrize("stage", STAGES)
def test_every_stage_can_be_resumed(dump: Dump, stage: str) -> None:
    folder, arrays, expected = dump
    again = compile(load_program(folder / f"stage-{stage}.mlir"))(*arrays)
    assert again.keys() == expected.keys()
    for name, array in expected.items():
        np.testing.assert_array_equal(again[name], array)


def test_every_file_can_be_resumed(dump: Dump) -> None:
    folder, arrays, expected = dump
    if folder.parent.name.startswith("mnist"):  # the quickest
        for file in sorted(folder.glob("*.mlir")):
            again = compile(load_program(file))(*arrays)
            assert all(np.array_equal(again[name], array) for name, array in expected.items()), file.name


def test_kernels_have_descriptive_names(dump: Dump) -> None:
    folder, _, _ = dump
    kernels = sorted((folder / "kernels").glob("*.loops.mlir"))
    assert kernels
    for kernel in kernels:
        lines = kernel.read_text().splitlines()
        assert re.match(r"// kernel @\S+: \d+ runs?", lines[0])
        assert re.match(r"//   #0 \S+", lines[1])
        assert (folder / "kernels" / kernel.name.replace(".loops.mlir", ".ll")).exists()


def test_values_have_names(dump: Dump) -> None:
    folder, _, _ = dump
    assert not [k.name for k in (folder / "kernels").glob("*.loops.mlir") if re.search(r"%\d", k.read_text())]


def test_a_convolution_kernel_is_short(dump: Dump) -> None:
    folder, _, _ = dump
    for kernel in (folder / "kernels").glob("conv*.loops.mlir"):
        # A function such as GELU is a polynomial by now, which may take more.
        if "math." not in kernel.with_name(kernel.name.replace(".loops.", ".tiling.")).read_text():
            assert len(kernel.read_text().splitlines()) < 120


@needs_mlir
def test_mlir_reads_every_file(dump: Dump) -> None:
    read_by_mlir(dump[0])


def read_by_mlir(folder: Path) -> None:
    """Check that MLIR reads every module of a dump, and verifies the kernels."""

    def modules(files: Iterable[Path]) -> list[ModuleOp]:
        return [parse_module(make_context(), f.read_text(), f.name) for f in files]

    accepted_by_mlir(modules(sorted(folder.glob("*.mlir"))), unregistered=True)
    accepted_by_mlir(
        modules(f for s in ("linalg", "tiling", "loops") for f in sorted((folder / "kernels").glob(f"*.{s}.mlir")))
    )
