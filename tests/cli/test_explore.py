"""`dlc explore`: pages of models and functions, and error messages."""

from __future__ import annotations

import json
import threading
import urllib.request
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner, Result

from dlc.cli import explore, main
from dlc.dialects import dl
from dlc.errors import DlcError
from dlc.explore import Page
from tests.explore.programs import LIMITS, rows, tiny, windows
from tests.targets import SHORT

FUNCTION = """
import dlc
import dlc.numpy as dnp

def scaled(x, y):
    return dnp.tanh(x) @ y

def slope(x, y):
    return dlc.grad(lambda x, y: scaled(x, y).sum())(x, y)

def chosen(x, k):
    return x[k]

broken = 3
"""


@pytest.fixture(autouse=True)
def limits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dlc.backends.cpu.limits.measured_limits", lambda target, threads=1: LIMITS)


def run(*arguments: object) -> Result:
    return CliRunner().invoke(main, ["explore", *map(str, arguments)], catch_exceptions=False)


def test_model(tmp_path: Path) -> None:
    model, page = tmp_path / "small.onnx", tmp_path / "page.html"
    model.write_bytes(tiny("Exp").SerializeToString())
    result = run(model, "-o", page, "--num-threads", 1, "--no-run")
    assert result.exit_code == 0 and result.stdout == f"Saved as {page}.\n"
    assert "<title>small · dlc</title>" in page.read_text()


def test_json_of_a_page(tmp_path: Path) -> None:
    model = tmp_path / "small.onnx"
    model.write_bytes(tiny("Exp").SerializeToString())
    result = run(model, "-o", tmp_path / "page.html", "--no-run", "--json")
    assert [k["name"] for k in json.loads(result.stdout)["kernels"]] == ["exp"] and (tmp_path / "page.html").exists()
    assert "--serve writes no page" in run(model, "--serve", "--json").stderr


def test_function_compared_with_its_derivative(tmp_path: Path) -> None:
    file, page, both = tmp_path / "f.py", tmp_path / "page.html", tmp_path / "both.html"
    file.write_text(FUNCTION)
    shapes, inputs = ["--shape", "x=4,8", "--shape", "y=8,2"], tmp_path / "inputs"
    inputs.mkdir()
    np.save(inputs / "x.npy", np.ones((4, 8), np.float32))
    np.savez(tmp_path / "y.npz", y=np.ones((8, 2), np.float32))
    assert run(f"{file}:scaled", "--input", inputs, "--input", tmp_path / "y.npz", "-o", page).exit_code == 0
    assert "<title>scaled · dlc</title>" in page.read_text()
    # An existing page is read, not created again; arguments of a derivative are positional.
    assert run(f"{file}:slope", *shapes, "-o", both, "--against", page).exit_code == 0
    assert ">page.html</button>" in both.read_text()
    assert run(both, "--against", page, "-o", page).exit_code == 0
    assert ">both.html</button>" in page.read_text() and "<title>slope" in page.read_text()


def test_comparison_with_another_target(tmp_path: Path) -> None:
    model, page = tmp_path / "small.onnx", tmp_path / "page.html"
    model.write_bytes(tiny("Exp").SerializeToString())
    arguments = [model, "-o", page, "--no-run", "--target", "cpu:avx2", "--against"]
    assert run(*arguments, "cpu:generic").exit_code == 0
    assert ">cpu:avx2</button>" in page.read_text() and ">cpu:generic</button>" in page.read_text()
    result = run(*arguments, "absent.html")
    assert result.exit_code == 2 and "absent.html: no such file" in " ".join(result.stderr.split())
    result = run(*arguments, "gpu")
    assert result.exit_code == 2 and "gpu: no such file, and no target: unknown target 'gpu'" in " ".join(result.stderr.split())


@pytest.mark.parametrize(
    "arguments, status, told",
    [
        (["absent.onnx"], 2, "no such file"),
        (["page.html"], 2, "no such file"),
        (["{f}:scaled", "--shape", "x=4,8"], 2, "scaled needs the argument y"),
        (["{f}:scaled", "--shape", "x=4,8", "--shape", "z=3"], 2, "scaled has no parameter z; its parameters are x, y"),
        (["{f}"], 2, "name a function of the file"),
        (["{f}:scaled", "--input", "folder"], 2, "name the argument of the function"),
        (["{f}:scaled", "--shape", "x=4,8", "--input", "y=random"], 2, "scaled needs the argument y"),
        (["{f}:scaled", "--value", "y=y.npy"], 2, "apply to ONNX models only"),
        (["{f}:scaled", "--train-step", "sgd", "--loss", "mse"], 2, "apply to ONNX models only"),
        (["{f}:scaled", "--shape", "x=N,8"], 2, "give every size as an integer"),
        (["{f}:chosen", "--shape", "x=4,8", "--shape", "k=2"], 1, "for other dtypes use a file: --input x=x.npy"),
        (["{f}:broken"], 1, "no function is named broken"),
        (["{f}:absent"], 1, "no function is named absent"),
    ],
)
def test_mistakes(arguments: list[str], status: int, told: str, tmp_path: Path) -> None:
    file = tmp_path / "f.py"
    file.write_text(FUNCTION)
    result = run(*(a.format(f=file) for a in arguments))
    assert result.exit_code == status and told in " ".join(result.stderr.split())


def test_errors_of_user_code_are_not_bugs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    file = Path("f.py")
    file.write_text("raise RuntimeError('no')")
    result = run(f"{file}:scaled", "--shape", "x=4,8")
    assert result.exit_code == 1 and "it raised RuntimeError: no" in " ".join(result.stderr.split())
    assert "bug of dlc" not in result.stderr
    file.write_text("def scaled(x):\n    return x.nothing()\n")
    result = run(f"{file}:scaled", "--shape", "x=4,8")
    assert result.exit_code == 1 and "f.py:2: an array of a traced function has no" in "".join(result.stderr.split("\n"))
    assert "bug of dlc" not in result.stderr
    for body in ("dlc.numpy.busday_count(x)", "np.zeros(3, wrong=1)", "json.loads('{')"):
        file.write_text(f"import json\nimport numpy as np\nimport dlc.numpy\ndef scaled(x):\n    return {body}\n")
        result = run(f"{file}:scaled", "--shape", "x=4,8")
        assert result.exit_code == 1 and "f.py:5: " in "".join(result.stderr.split("\n"))
        assert "bug of dlc" not in result.stderr


def test_bugs_of_dlc_are_reported_as_bugs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(dl.TanhOp, "inferred", lambda self: 1 // 0)
    Path("f.py").write_text("import dlc.numpy as dnp\ndef f(x):\n    return dnp.tanh(x)\n")
    result = run("f.py:f", "--shape", "x=4,8")
    told = " ".join(result.stderr.split())
    assert (
        result.exit_code == 1 and "ZeroDivisionError" in told and "raised at f.py:3" in told and "This is a bug of dlc" in told
    )


def test_symbolic_dimensions_default_to_planned_sizes(tmp_path: Path) -> None:
    model, page = tmp_path / "rows.onnx", tmp_path / "page.html"
    model.write_bytes(rows().SerializeToString())
    for more, n in (([], 4), (["--shape", "x=n:16..64,8"], 32)):
        assert run(model, "-o", page, "--target", SHORT, *more).exit_code == 0
        shown = Page.read(page).program
        assert shown.sizes == {"n": n} and shown.measurements is not None


def test_default_sizes_are_in_the_compiled_range(tmp_path: Path) -> None:
    model, page = tmp_path / "windows.onnx", tmp_path / "page.html"
    model.write_bytes(windows().SerializeToString())
    assert run(model, "-o", page, "--target", SHORT).exit_code == 0
    shown = Page.read(page).program
    assert shown.sizes["n"] >= 9 and shown.measurements is not None
    assert any("%s0" in step.listing.text for step in shown.units[1].steps)  # the kernel is that of all sizes


def test_serve_on_localhost(monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[str] = []
    ready = threading.Event()
    monkeypatch.setattr(explore.webbrowser, "open", lambda address: (opened.append(address), ready.set()))
    threading.Thread(target=explore._serve, args=("<p>é</p>", 0), daemon=True).start()
    assert ready.wait(10)
    assert opened[0].startswith("http://127.0.0.1:")
    with urllib.request.urlopen(opened[0]) as response:
        assert response.read().decode() == "<p>é</p>"
    with pytest.raises(urllib.error.HTTPError, match="404"):
        urllib.request.urlopen(f"{opened[0]}etc/passwd")
    port = int(opened[0].rstrip("/").rpartition(":")[2])
    with pytest.raises(DlcError, match=f"port {port}: Address already in use"):
        explore._serve("", port)


def test_dumped_modules(tmp_path: Path) -> None:
    model, dump = tmp_path / "small.onnx", tmp_path / "ir"
    model.write_bytes(tiny("Exp").SerializeToString())
    assert CliRunner().invoke(main, ["compile", str(model), "--target", "cpu:avx2", "--dump-ir", str(dump)]).exit_code == 0
    page = tmp_path / "page.html"
    assert run(dump / "stage-dl.mlir", "-o", page, "--no-run").exit_code == 0 and page.exists()
    result = run(dump / "stage-tiling.mlir", "-o", page, "--no-run")
    assert result.exit_code == 1 and "its kernels are already formed" in " ".join(result.stderr.split())
