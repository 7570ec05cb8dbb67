"""Compare tiled kernels with a naive mapping on an OpenCL device.

    python benchmarks/naive_mapping.py [MODEL …] [--target TARGET]

The naive mapping (`tile-kernels{… naive=true}`) computes one element of the result per work-item, without tiles. Runs of both
programs are interleaved in one process; medians are reported. MODEL is as in models.py (default: resnet18 and bert_base_128).
"""

from __future__ import annotations

import argparse
import tempfile
from dataclasses import replace
from pathlib import Path

import onnx
from models import blocking_call, load, model_name

import dlc
from dlc.backends.registry import backend_of
from dlc.measure.latency import measure_interleaved
from dlc.passes.tiling.tile_kernels import TileKernelsPass

SECONDS_PER_MODEL = 20.0


def naive_pipeline(target: str) -> str:
    """Return the passes of a target, with the naive mapping instead of tiling."""
    passes = [p for stage in backend_of(target).stages("default") for p in stage.passes]
    return ",".join(str(replace(p, naive=True) if isinstance(p, TileKernelsPass) else p) for p in passes)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", type=model_name, default=["resnet18", "bert_base_128"])
    parser.add_argument("--target", default="opencl")
    options = parser.parse_args()
    for name in options.models:
        model, inputs = load(name)
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, "model.onnx")
            onnx.save(model, path)
            shapes = {k: v.shape for k, v in inputs.items()}
            pipelines = {"tiles": None, "naive": naive_pipeline(options.target)}
            compiled = {
                kind: dlc.compile_model(path, target=options.target, input_shapes=shapes, pipeline=passes)
                for kind, passes in pipelines.items()
            }
            latencies = measure_interleaved({kind: blocking_call(m, inputs) for kind, m in compiled.items()}, SECONDS_PER_MODEL)
        tiles, naive = (latencies[kind].median for kind in ("tiles", "naive"))
        print(f"{name} on {options.target}: {tiles * 1e3:.1f} ms, naive {naive * 1e3:.1f} ms, {naive / tiles:.1f} times")


if __name__ == "__main__":
    main()
