"""Answer many concurrent requests: join them into batches, and await the results.

    python examples/concurrent_requests.py [REQUESTS]

Each request is one image of a line of text; the model says whether the line is upside down.
"""

from __future__ import annotations

import asyncio
import sys
import time
from pathlib import Path

import numpy as np

import dlc

MODEL = Path(__file__).parent / "models" / "ppocr_v2_cls.onnx"


async def answer(model, image: np.ndarray) -> int:
    outputs = await model.submit({"x": image}, deadline=60)
    (scores,) = outputs.values()
    return int(scores[0].argmax())


async def main(requests: int) -> None:
    compiled = dlc.compile_model(MODEL, input_shapes={"x": ("N:1..16", 3, 48, 192)}, streams=2)
    model = dlc.batched(compiled, max_batch=16, max_delay_ms=2)
    images = np.random.default_rng(0).standard_normal((requests, 1, 3, 48, 192)).astype(np.float32)
    start = time.perf_counter()
    answers = await asyncio.gather(*(answer(model, image) for image in images))
    seconds = time.perf_counter() - start
    calls = sum(model.batch_sizes.values())
    print(f"{len(answers)} answers from {calls} calls of the model, {len(answers) / seconds:.0f} per second")


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]) if len(sys.argv) > 1 else 256))
