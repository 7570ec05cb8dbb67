"""The example plug-in, installed in an environment of its own without network access, and its removal."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tomllib
import venv
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PROGRAM = """
import numpy as np, onnx, dlc
from onnx import TensorProto, helper

node = helper.make_node("SoftClip", ["x"], ["y"], domain="com.example", limit=2.0)
info = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [4]) for name in "xy"]
model = helper.make_model(
    helper.make_graph([node], "g", info[:1], info[1:]),
    opset_imports=[helper.make_opsetid("", 20), helper.make_opsetid("com.example", 1)],
)
x = np.float32([-2, 0, 1, 6])
(y,) = dlc.compile_model(model.SerializeToString())(x).values()
np.testing.assert_allclose(y, x / (1 + abs(x) / 2), rtol=1e-6)
"""
MERGED = """
import numpy as np, dlc
from dlc_soft_clip import soft_clip
f = dlc.jit(lambda x: soft_clip(soft_clip(x, 2), 6))
x = np.float32([-2, 0, 1, 6])
np.testing.assert_allclose(f(x), x / (1 + abs(x) / 1.5), rtol=1e-6)
np.testing.assert_allclose(dlc.grad(lambda x: f(x).sum())(x), 1 / (1 + abs(x) / 1.5) ** 2, rtol=1e-5)
print(dlc.compiler.emit(f.lower(x).program, "dl"))
"""


LISTING = "import json\nfrom dlc.plugins.registry import statuses\nprint(json.dumps([s.name for s in statuses()]))"
EXAMPLE = ROOT / "examples" / "plugin"


@pytest.fixture(scope="module")
def packages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the packages of an environment that has dlc of this folder and its dependencies."""
    folder = tmp_path_factory.mktemp("environment")
    venv.create(folder, with_pip=False, symlinks=True)
    packages = next((folder / "lib").glob("python*")) / "site-packages"
    (packages / "outer.pth").write_text("\n".join([str(ROOT), *(p for p in sys.path if "site-packages" in p)]) + "\n")
    return packages


def install(packages: Path) -> list[Path]:
    """Install the example as pip does, without building it, and return the folders."""
    project = tomllib.loads((EXAMPLE / "pyproject.toml").read_text())["project"]
    (package,) = (p.parent for p in EXAMPLE.glob("*/__init__.py"))
    metadata = packages / f"{project['name'].replace('-', '_')}-{project['version']}.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}\n")
    (group,) = project["entry-points"]
    lines = [f"{name} = {value}" for name, value in project["entry-points"][group].items()]
    (metadata / "entry_points.txt").write_text("\n".join([f"[{group}]", *lines, ""]))
    return [Path(shutil.copytree(package, packages / package.name)), metadata]


def test_the_example_is_installable(tmp_path: Path) -> None:
    sources = shutil.copytree(EXAMPLE, tmp_path / "sources")
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-build-isolation", "--no-deps", "--no-index"]
    result = subprocess.run([*command, "--target", tmp_path / "pip", sources], capture_output=True, text=True)
    if result.returncode:
        pytest.skip(f"pip cannot build packages here: {result.stderr.strip().splitlines()[-1:]}")
    (tmp_path / "copied").mkdir()
    install(tmp_path / "copied")
    for file in (tmp_path / "copied").rglob("*.*"):
        if file.name not in ("METADATA",) and file.is_file():
            installed = tmp_path / "pip" / file.relative_to(tmp_path / "copied")
            assert installed.read_text().split() == file.read_text().split()


def run(packages: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    folder = packages.parents[2]
    variables = {"PATH": "/usr/bin:/bin", "DLC_CACHE": "0", "HOME": str(folder)}
    return subprocess.run([folder / "bin" / "python", *arguments], capture_output=True, text=True, env=variables, cwd=folder)


def output_of(packages: Path, *arguments: str) -> str:
    result = run(packages, *arguments)
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout


def test_the_example_plugin_and_its_removal(packages: Path) -> None:
    folders = install(packages)
    (row,) = json.loads(output_of(packages, "-m", "dlc", "plugins", "--json"))
    assert (row["name"], row["version"], row["failures"]) == ("soft-clip", "1.0", "")
    assert row["adds"] == "ops, partials, passes, onnx converters" and row["origin"].startswith("dlc-soft-clip")
    assert "merge-soft-clips" in output_of(packages, "-m", "dlc", "passes", "--json")
    output_of(packages, "-c", PROGRAM)
    assert output_of(packages, "-c", MERGED).count("example.soft_clip") == 1
    targets = ("--target", "reference", "--target", "cpu")
    assert " 0 failed" in output_of(packages, "-m", "dlc.testing", "dlc_soft_clip", *targets)
    assert json.loads(output_of(packages, "-c", "import os; os.environ['DLC_PLUGINS'] = '0'\n" + LISTING)) == []
    for folder in folders:
        shutil.rmtree(folder)
    assert json.loads(output_of(packages, "-m", "dlc", "plugins", "--json")) == []
    assert "merge-soft-clips" not in output_of(packages, "-m", "dlc", "passes", "--json")
    assert "domain 'com.example' is not supported" in run(packages, "-c", PROGRAM).stderr


def test_a_plugin_that_fails_to_load_names_itself(packages: Path) -> None:
    (packages / "broken_plugin.py").write_text("import a_module_that_is_missing\n")
    metadata = packages / "broken_plugin-3.1.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: broken-plugin\nVersion: 3.1\n")
    (metadata / "entry_points.txt").write_text("[dlc.plugins]\nbroken = broken_plugin:plugin\n")
    result = run(packages, "-c", "import numpy as np, dlc; print(dlc.jit(lambda x: x + 1)(np.ones(2)))")
    assert result.returncode == 0 and "[2. 2.]" in result.stdout
    assert "plug-in broken 3.1" in result.stderr and "No module named 'a_module_that_is_missing'" in result.stderr
