"""Benchmark models on an OpenCL device against PyTorch on the same GPU: python benchmarks/gpu.py [MODEL:BATCH …] [--kernels N]

Needs torch and, for image models, torchvision; without CUDA only dlc is measured. Everything computes in f32 (TF32 is off),
weights are random, and inputs are on the device before a call. Columns, as medians in ms:

- torch: PyTorch eager, and the same model recorded as one CUDA graph;
- dlc: throughput with a full queue, latency of a call that is waited for, and the host's share of it;
- the number of launches, the compile time, and the largest error relative to PyTorch's largest magnitude.

--kernels N lists the N kernels that take longest, each launched alone; their times include waiting for the device.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from optional_imports import optional_imports
from rich.console import Console
from rich.table import Table

import dlc

with optional_imports(__doc__):
    import torch
    from torch import nn
    from torch.nn import functional

MIN_SECONDS = 0.5
HEADS, WIDTH = 12, 768


class Layer(nn.Module):
    """A transformer layer: attention and an MLP, each with its norm after (BERT) or before it (GPT)."""

    def __init__(self, pre_norm: bool) -> None:
        super().__init__()
        self.pre_norm = pre_norm
        self.norms = nn.ModuleList(nn.LayerNorm(WIDTH) for _ in range(2))
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def attend(self, x: torch.Tensor, past: torch.Tensor | None) -> torch.Tensor:
        batch, length, _ = x.shape
        q, k, v = (p.reshape(batch, length, HEADS, -1).transpose(1, 2) for p in self.qkv(x).split(WIDTH, -1))
        if past is not None:
            k, v = torch.cat([past[0], k], 2), torch.cat([past[1], v], 2)
        y = functional.scaled_dot_product_attention(q, k, v)
        return self.out(y.transpose(1, 2).reshape(batch, length, WIDTH))

    def forward(self, x: torch.Tensor, past: torch.Tensor | None = None) -> torch.Tensor:
        attention_norm, mlp_norm = self.norms
        if self.pre_norm:
            x = x + self.attend(attention_norm(x), past)
            return x + self.down(functional.gelu(self.up(mlp_norm(x))))
        x = attention_norm(x + self.attend(x, past))
        return mlp_norm(x + self.down(functional.gelu(self.up(x))))


class Encoder(nn.Module):
    """BERT base: twelve layers on 128 tokens."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.layers = nn.Embedding(30522, WIDTH), nn.ModuleList(Layer(pre_norm=False) for _ in range(12))

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        x = self.words(ids)
        for layer in self.layers:
            x = layer(x)
        return x


class Decoder(nn.Module):
    """GPT-2 small, decoding one token after 128 tokens in the KV cache."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.layers = nn.Embedding(50257, WIDTH), nn.ModuleList(Layer(pre_norm=True) for _ in range(12))
        self.norm = nn.LayerNorm(WIDTH)

    def forward(self, ids: torch.Tensor, past: torch.Tensor) -> torch.Tensor:
        x = self.words(ids)
        for k, layer in enumerate(self.layers):
            x = layer(x, past[k])
        return functional.linear(self.norm(x), self.words.weight)


def torchvision_model(name: str) -> nn.Module:
    with optional_imports(__doc__):
        from torchvision import models
    return getattr(models, name)(weights=None)


def images(batch: int) -> tuple[torch.Tensor, ...]:
    return (torch.randn(batch, 3, 224, 224),)


# The constructor of a model, and a function from a batch size to the arguments of a call.
MODELS: dict[str, tuple[Callable[[], nn.Module], Callable[[int], tuple[torch.Tensor, ...]]]] = {
    **{
        name: (lambda name=name: torchvision_model(name), images)
        for name in ("resnet18", "resnet50", "mobilenet_v2", "efficientnet_b0")
    },
    "bert": (Encoder, lambda b: (torch.randint(30522, (b, 128)),)),
    "gpt2": (Decoder, lambda b: (torch.randint(50257, (b, 1)), torch.randn(12, 2, b, HEADS, 128, WIDTH // HEADS))),
}
DEFAULT = [f"{name}:{batch}" for name in ("resnet50", "efficientnet_b0", "bert", "gpt2") for batch in (1, 32)]


def model_and_batch(text: str) -> tuple[str, int]:
    """Parse MODEL:BATCH; raise ArgumentTypeError for an unknown model."""
    name, _, batch = text.partition(":")
    if name not in MODELS or not (batch or "1").isdigit():
        raise argparse.ArgumentTypeError(f"{text}: expected MODEL:BATCH, where MODEL is one of {', '.join(MODELS)}")
    return name, int(batch or 1)


def median_ms(call: Callable[[], object], wait: Callable[[], object], calls: int) -> float:
    """Return the median time per call of `calls` consecutive calls that are waited for at the end."""
    times: list[float] = []
    start_time = time.perf_counter()
    while len(times) < 3 or time.perf_counter() < start_time + MIN_SECONDS:
        start = time.perf_counter()
        for _ in range(calls):
            call()
        wait()
        times.append((time.perf_counter() - start) / calls)
    return statistics.median(times) * 1e3


def measure_torch(module: nn.Module, inputs: tuple[torch.Tensor, ...]) -> Iterator[tuple[str, float]]:
    """Yield the ms of a call in eager mode and as a CUDA graph."""
    module, inputs, wait = module.cuda(), tuple(a.cuda() for a in inputs), torch.cuda.synchronize
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        for _ in range(3):
            module(*inputs)
    wait()
    yield "eager", median_ms(lambda: module(*inputs), wait, 10)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        module(*inputs)
    yield "graph", median_ms(graph.replay, wait, 10)


def measure_dlc(model: dlc.Model, inputs: list[Any]) -> Iterator[tuple[str, float]]:
    """Yield the ms of a call: with a full queue, with a wait, and the host's share."""
    wait = next(iter(model(*inputs).values())).session.queue.finish
    wait()
    yield "queued", median_ms(lambda: model(*inputs), wait, 10)
    yield "waited", median_ms(lambda: model(*inputs), wait, 1)
    times: list[float] = []
    for _ in range(20):
        start = time.perf_counter()
        model(*inputs)
        times.append(time.perf_counter() - start)
        wait()
    yield "host", statistics.median(times) * 1e3


def kernel_seconds(model: dlc.Model, inputs: list[Any]) -> dict[str, list[float]]:
    """Return the seconds of each launch by kernel name: medians of five runs."""
    program = model.artifact.program
    runs = [program.profile(inputs) for _ in range(5)]
    times: dict[str, list[float]] = defaultdict(list)
    for launches in zip(*runs, strict=True):
        times[launches[0][0].kernel or "copy"].append(statistics.median(seconds for _, seconds in launches))
    return times


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "models", nargs="*", type=model_and_batch, default=[model_and_batch(text) for text in DEFAULT], metavar="MODEL:BATCH"
    )
    parser.add_argument("--target", default="opencl")
    parser.add_argument("--kernels", type=int, default=0, metavar="N", help="list the N kernels that take longest")
    arguments = parser.parse_args()
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    torch.backends.cudnn.benchmark = True
    console = Console()
    table = Table("model", "torch eager", "graph", "dlc queued", "waited", "host", "launches", "compile s", "error")
    for name, batch in arguments.models:
        make, arrays = MODELS[name]
        torch.manual_seed(0)
        module, inputs = make().eval(), arrays(batch)
        start_time = time.perf_counter()
        model = dlc.from_torch(module, inputs, target=arguments.target, cache=False)
        compile_s = time.perf_counter() - start_time
        device_inputs = [dlc.to_device(a.numpy(), arguments.target) for a in inputs]
        with torch.no_grad():
            expected = module(*inputs).numpy()
            torch_times = dict(measure_torch(module, inputs)) if torch.cuda.is_available() else {}
        outputs = np.asarray(next(iter(model(*device_inputs).values())))
        dlc_times = dict(measure_dlc(model, device_inputs))
        times = kernel_seconds(model, device_inputs)
        cells = [
            f"{ms:.2f}" if ms is not None else "" for ms in (*map(torch_times.get, ("eager", "graph")), *dlc_times.values())
        ]
        error = np.abs(outputs - expected).max() / np.abs(expected).max()
        table.add_row(f"{name}:{batch}", *cells, str(sum(map(len, times.values()))), f"{compile_s:.1f}", f"{error:.0e}")
        longest = sorted(times.items(), key=lambda item: -sum(item[1]))[: arguments.kernels]
        for kernel, seconds in longest:
            console.print(f"{name}:{batch} {sum(seconds) * 1e6:9.1f} us {len(seconds):3} x {kernel}")
    console.print(table)


if __name__ == "__main__":
    main()
