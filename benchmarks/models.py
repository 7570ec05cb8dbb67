"""Latency of whole models, side by side with ONNX Runtime: python benchmarks/models.py [MODEL …] [--threads N] [--json FILE].

MODEL is an ONNX file or the name of one of the set below. Both runtimes get the same inputs and the same number of threads
in one process; their runs are interleaved and the median counts, since clock rates vary. With more than one thread they
take turns in blocks with a pause between: the spinning pools of two runtimes disturb each other.
"""

from __future__ import annotations

import argparse
import json
import platform
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from statistics import median

import numpy as np
import onnx

import dlc

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))

from tests.models import skeletons  # noqa: E402

SKELETONS = ["resnet18", "resnet50", "mobilenet_v2", "efficientnet_b0", "squeezenet1_1", "bert_base_128", "vit_b16"]
PRETRAINED = ["magika_v3_3", "basic_pitch", "blazeface_front", "ppocr_v2_cls"]
SMALL = ["mnist_cnn"]
SECONDS = 4.0
PAUSE = 0.03  # seconds: longer than any runtime spins

Inputs = Mapping[str, np.ndarray]


def load(name: str) -> tuple[onnx.ModelProto, Inputs]:
    """A model of the set, or a file, and inputs for it."""
    if name in SKELETONS:
        model = skeletons.filled(name)
        return model, skeletons.inputs(name, model)
    if name in PRETRAINED + SMALL:
        return onnx.load(skeletons.path_of(name)), next(skeletons.recordings(name))[0]
    model = onnx.load(name)
    return model, skeletons.inputs(name, model)


def onnx_runtime(path: Path, inputs: Inputs, threads: int) -> Callable[[], object] | None:
    try:
        import onnxruntime
    except ImportError:
        return None
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    return lambda: session.run(None, dict(inputs))


def measure(runs: Mapping[str, Callable[[], object]], threads: int) -> dict[str, float]:
    """The median seconds of each, interleaved."""
    for run in runs.values():
        run()
    once = sum(_seconds(run) for run in runs.values())
    rounds = max(7, min(300, int(SECONDS / once)))
    times: dict[str, list[float]] = {name: [] for name in runs}
    block = 1 if threads == 1 else 5
    for _ in range(-(-rounds // block)):
        for name, run in runs.items():
            if threads > 1:
                time.sleep(PAUSE)
                run()
            times[name] += [_seconds(run) for _ in range(block)]
    return {name: median(t) for name, t in times.items()}


def _seconds(run: Callable[[], object]) -> float:
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


def processor() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.processor()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", default=[*SKELETONS, *PRETRAINED, *SMALL])
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--target", default="cpu")
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    rows: list[dict[str, object]] = []
    print(f"{processor()}, {arguments.threads} thread(s), target {arguments.target}")
    print(f"{'model':20} {'compile s':>9} {'dlc ms':>9} {'ORT ms':>9} {'dlc/ORT':>8}")
    for name in arguments.models:
        model, inputs = load(name)
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "model.onnx"
            onnx.save(model, path)
            start = time.perf_counter()
            shapes = {k: v.shape for k, v in inputs.items()}
            compiled = dlc.compile_model(
                path, target=arguments.target, input_shapes=shapes, num_threads=arguments.threads, cache=False
            )
            seconds = time.perf_counter() - start
            runs: dict[str, Callable[[], object]] = {"dlc": lambda c=compiled, i=inputs: c(i)}
            peer = onnx_runtime(path, inputs, arguments.threads)
            if peer is not None:
                runs["ort"] = peer
            times = measure(runs, arguments.threads)
        ratio = times["dlc"] / times["ort"] if "ort" in times else float("nan")
        ort = times.get("ort", float("nan"))
        print(f"{Path(name).stem:20} {seconds:9.2f} {times['dlc'] * 1e3:9.3f} {ort * 1e3:9.3f} {ratio:8.2f}", flush=True)
        rows.append({"model": name, "compile_s": seconds, "dlc_s": times["dlc"], "ort_s": ort, "ratio": ratio})
    if arguments.json:
        report = {"processor": processor(), "threads": arguments.threads, "target": arguments.target, "models": rows}
        arguments.json.write_text(json.dumps(report, indent=1))


if __name__ == "__main__":
    main()
