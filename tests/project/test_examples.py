"""The examples, run as programs."""

from __future__ import annotations

import gzip
import re
import runpy
import sys
from pathlib import Path

import numpy as np
import pytest

import dlc

ROOT = Path(__file__).parents[2]


def run(name: str, *arguments: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run an example as a program."""
    example = ROOT / "examples" / name
    monkeypatch.setattr(sys, "argv", [str(example), *arguments])
    runpy.run_path(str(example), run_name="__main__")


def test_identify_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    page = tmp_path / "page"
    page.write_text("<!DOCTYPE html>\n<html><head><title>dlc</title></head><body><p>Words.</p></body></html>\n" * 3)
    archive, empty, short = tmp_path / "archive", tmp_path / "empty", tmp_path / "short"
    archive.write_bytes(gzip.compress(bytes(range(256)) * 20, mtime=0))
    empty.touch()
    short.write_text("dlc")
    expected = {
        ROOT / "LICENSE": "txt",
        ROOT / "dlc" / "runtime" / "load.py": "python",
        ROOT / "pyproject.toml": "toml",
        ROOT / "README.md": "markdown",
        ROOT / "tests" / "models" / "small" / "mnist_cnn.onnx": "onnx",
        page: "html",
        archive: "gzip",
        empty: "empty",
        short: "txt",
    }
    run("identify_file.py", *map(str, expected), monkeypatch=monkeypatch)
    printed = capsys.readouterr().out.splitlines()
    assert [line.split(" (")[0] for line in printed] == [f"{path}: {label}" for path, label in expected.items()]


def test_k_means(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    rng = np.random.default_rng(1)
    centers = np.array([[0, 0, 0], [9, 0, 1], [0, 8, 2], [7, 7, 7]])
    points = np.repeat(centers, [40, 30, 20, 10], axis=0) + rng.normal(0, 0.5, (100, 3))
    np.save(tmp_path / "points.npy", rng.permutation(points))
    run("k_means.py", str(tmp_path / "points.npy"), "4", monkeypatch=monkeypatch)
    first, *rest = capsys.readouterr().out.splitlines()
    assert first.startswith("100 points") and "mean squared distance 0.59" in first
    assert sorted(int(line.split()[2]) for line in rest) == [10, 20, 30, 40]


def test_drawdowns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    x = np.random.default_rng(0).normal(size=(3, 50)).cumsum(1)
    np.save(tmp_path / "series.npy", x)
    run("drawdowns.py", str(tmp_path / "series.npy"), monkeypatch=monkeypatch)
    largest = (np.maximum.accumulate(x, 1) - x).max(1)
    assert f"largest drawdown {largest.max():.3f}, in series {largest.argmax()}" in capsys.readouterr().out


def test_find_edges(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    image = np.full((60, 80, 3), 40, np.uint8)
    image[20:40, 30:60] = [250, 200, 10]
    (tmp_path / "image.ppm").write_bytes(b"P6\n# a comment\n80 60\n255\n" + image.tobytes())
    run("find_edges.py", str(tmp_path / "image.ppm"), str(tmp_path / "edges.pgm"), monkeypatch=monkeypatch)
    assert capsys.readouterr().out.startswith("80×60 pixels")
    header, size, _, pixels = (tmp_path / "edges.pgm").read_bytes().split(b"\n", 3)
    assert (header, size) == (b"P5", b"80 60")
    edges = np.frombuffer(pixels, np.uint8).reshape(60, 80)
    # Only the border of the rectangle is white.
    assert edges[30, [29, 30]].max() > 200 and edges[[39, 40], 45].max() > 200
    assert edges[:17].max() == edges[43:].max() == edges[:, :27].max() == edges[:, 63:].max() == edges[23:37, 33:57].max() == 0


def test_fine_tune(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    run("fine_tune.py", "-o", str(tmp_path / "tuned.onnx"), monkeypatch=monkeypatch)
    before, after = re.findall(r"([\d.]+)%", capsys.readouterr().out)
    assert float(before) < 25 and float(after) > 85


def test_digits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("sklearn", reason="examples/digits.py takes its images from scikit-learn")
    run("digits.py", str(tmp_path / "curve.svg"), monkeypatch=monkeypatch)
    assert float(capsys.readouterr().out.partition("%")[0]) >= 97.5
    assert "polyline" in (tmp_path / "curve.svg").read_text()


def test_data_parallel(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    run("data_parallel.py", monkeypatch=monkeypatch)
    assert float(capsys.readouterr().out.split()[1].rstrip(",")) < 0.1


def test_zero(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """A resumed run begins where the saved one ended."""
    losses: list[float] = []
    for arguments in (["--stage", "3", "--save", str(tmp_path)], ["--stage", "2", "--resume", str(tmp_path)]):
        run("zero.py", *arguments, monkeypatch=monkeypatch)
        losses.append(float(capsys.readouterr().out.split()[1].rstrip(";")))
    assert losses[0] < 0.1 and losses[1] < 0.6 * losses[0]


def test_tensor_parallel(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    run("tensor_parallel.py", monkeypatch=monkeypatch)
    printed = capsys.readouterr().out
    assert float(printed.split()[1]) < 3.2 and "0 all_reduces" in printed


def test_write_docs(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    run("write_docs.py", "60", "A pass ", monkeypatch=monkeypatch)
    first, _, text = capsys.readouterr().out.partition("\n")
    assert float(first.split("loss ")[1].split()[0]) < 3.2
    assert text.startswith("A pass ")
    assert len(text) > 200


def test_vibrations(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    run("vibrations.py", monkeypatch=monkeypatch)
    assert capsys.readouterr().out.startswith("bend 1660, symmetric stretch 3852, asymmetric stretch 3908")


def test_neural_ode(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    run("neural_ode.py", "100", monkeypatch=monkeypatch)
    first, *rest = capsys.readouterr().out.splitlines()
    assert float(first.split()[1]) < 0.1
    assert len(rest) == 4


def test_concurrent_requests(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    run("concurrent_requests.py", "24", monkeypatch=monkeypatch)
    found = re.match(r"24 answers from (\d+) calls of the model", capsys.readouterr().out)
    assert found is not None and 2 <= int(found[1]) <= 24


@pytest.mark.parametrize("name", ["drawdowns.py", "find_edges.py", "identify_file.py", "k_means.py", "c_target.py"])
def test_missing_file_is_an_error(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    missing = str(tmp_path / "missing")
    output_arguments = [str(tmp_path / "out")] * (name == "find_edges.py")
    with pytest.raises(SystemExit, match=re.escape(missing)):
        run(name, missing, *output_arguments, monkeypatch=monkeypatch)


def test_torch_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    torch = pytest.importorskip("torch")
    if "dlc" not in torch._dynamo.list_backends():
        pytest.skip("this dlc is not installed where torch is")
    run("torch_module.py", "--steps", "60", "-o", str(tmp_path / "spirals.dlc"), monkeypatch=monkeypatch)
    accuracy = re.search(r"([\d.]+)% of 1000 points", capsys.readouterr().out)
    assert accuracy is not None and float(accuracy[1]) > 70


def photographs() -> list[tuple[np.ndarray, np.ndarray]]:
    """Return photographs as inputs of EfficientNet-Lite0, and the logits of the float model."""
    with np.load(ROOT / "tests" / "models" / "expected" / "efficientnet_lite0.npz") as file:
        return [(file[f"{k}/in/input"], file[f"{k}/out/logits"]) for k in range(4)]


def test_the_quantised_classifier(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    # Use the cache, as users do: the example reuses the models that are compiled here.
    monkeypatch.delenv("DLC_VERIFY")
    monkeypatch.setenv("DLC_CACHE", "1")
    monkeypatch.setenv("DLC_CACHE_DIR", str(tmp_path / "cache"))
    model = dlc.compile_model(ROOT / "examples" / "models" / "efficientnet_lite0_int8.onnx")
    for x, expected in photographs():
        logits = model(x)["logits"]
        assert logits.argmax() == expected.argmax()
        assert np.linalg.norm(logits - expected) < 0.05 * np.linalg.norm(expected)
    image = pytest.importorskip("PIL.Image", reason="examples/classify_image.py reads images with Pillow")
    cat = tmp_path / "cat.png"
    image.fromarray((photographs()[0][0][0].transpose(1, 2, 0) * 128 + 127).round().astype(np.uint8)).save(cat)
    run("classify_image.py", str(cat), monkeypatch=monkeypatch)
    assert capsys.readouterr().out.startswith(f"{cat}: Egyptian cat ")
