"""Tiles beside the naive mapping on an OpenCL device: python benchmarks/naive.py [MODEL …] [--target TARGET].

The naive mapping computes one element of the result with each item and has no tiles: `tile-kernels{… naive=true}`. Both
programs take turns in one process; medians count. MODEL as in models.py; resnet18 and bert_base_128 if none is named.
"""

from __future__ import annotations

import argparse
import tempfile
from dataclasses import replace
from pathlib import Path

import onnx
from models import called, known, load

import dlc
from dlc.backends.registry import backend_of
from dlc.measure.latency import interleaved
from dlc.passes.tiling.tile_kernels import TileKernelsPass

SECONDS = 20.0


def naive_pipeline(target: str) -> str:
    """The passes for a target, with the naive mapping in place of tiles."""
    passes = [p for stage in backend_of(target).stages("default") for p in stage.passes]
    return ",".join(str(replace(p, naive=True) if isinstance(p, TileKernelsPass) else p) for p in passes)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", type=known, default=["resnet18", "bert_base_128"])
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
            found = interleaved({kind: called(m, inputs) for kind, m in compiled.items()}, SECONDS)
        tiles, naive = (found[kind].median for kind in ("tiles", "naive"))
        print(f"{name} on {options.target}: {tiles * 1e3:.1f} ms, naive {naive * 1e3:.1f} ms, {naive / tiles:.1f} times")


if __name__ == "__main__":
    main()
