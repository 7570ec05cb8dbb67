"""Measure asynchronous calls: submissions, throughput with several clients, batching, and inter-op parallelism.

    python benchmarks/concurrency.py [submit] [throughput] [batching] [inter-op] [--model FILE.onnx] [--clients 16]

Throughput is compared with OpenVINO's throughput mode and with two sessions of ONNX Runtime, if they are installed. Runs take
turns, and medians are reported. Requests per second of processor time do not depend on other load of the machine.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import threading
import time
from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, cast

import numpy as np
import onnx

import dlc
import dlc.numpy as dnp
from dlc import nn
from dlc.arrays import TensorInfo
from dlc.machine.cpus import usable_cpus
from dlc.measure.throughput import measure_throughput
from dlc.runtime.program.host_program import Parallel
from dlc.runtime.requests.request_queue import RequestQueue

RNG = np.random.default_rng(0)
# The number of requests that are submitted while the queue is blocked.
BURST_CALLS = 1000
# The widths of GoogLeNet's Inception blocks: inputs, 1x1, reduced and 3x3, reduced and second 3x3, pooled.
INCEPTION_WIDTHS = (
    *((192, 64, 96, 128, 16, 32, 32), (256, 128, 128, 192, 32, 96, 64), (480, 192, 96, 208, 16, 48, 64)),
    *((512, 160, 112, 224, 24, 64, 64), (512, 128, 128, 256, 24, 64, 64), (512, 112, 144, 288, 32, 64, 64)),
    *((528, 256, 160, 320, 32, 128, 128), (832, 256, 160, 320, 32, 128, 128), (832, 384, 192, 384, 48, 128, 128)),
)
# The blocks before which GoogLeNet pools.
INCEPTION_POOLS = (2, 7)
TABULAR_WIDTHS = (64, 512, 512, 512, 8)
BATCH_ROWS = 64
# Widths of networks whose weights fit in a shared cache, and in memory only.
BATCHED_WIDTHS = (2048, 4096)
# Without the precision, OpenVINO rounds operands to bf16 where the processor supports it.
OPENVINO_SETTINGS = {"PERFORMANCE_HINT": "THROUGHPUT", "INFERENCE_PRECISION_HINT": "f32"}


def submission_microseconds() -> float:
    """Return the processor time of `submit`, while another call occupies the queue."""
    times: list[float] = []
    feed = {"x": np.zeros(4, np.float32)}
    for _ in range(30):
        gate = threading.Event()
        queue = RequestQueue(lambda x, gate=gate: gate.wait(), max_pending=2 * BURST_CALLS)
        queue.submit(feed)
        start = time.thread_time()
        futures = [queue.submit(feed) for _ in range(BURST_CALLS)]
        times.append((time.thread_time() - start) / BURST_CALLS * 1e6)
        gate.set()
        futures[-1].result()
    return statistics.median(times)


def closed_loop(run: Callable[[], object], clients: int, seconds: float) -> tuple[float, float, float]:
    """Return the requests per second, those per second of processor time, and the 99th percentile of the latency in ms.

    Each client is a thread. If `run` returns a future, each is a task of one event loop instead, which awaits it.
    """
    latencies: list[float] = []
    end = time.perf_counter() + seconds

    def client() -> None:
        own: list[float] = []
        while (start := time.perf_counter()) < end:
            run()
            own.append(time.perf_counter() - start)
        latencies.extend(own)

    async def task() -> None:
        while (start := time.perf_counter()) < end:
            await cast("dlc.Future", run())
            latencies.append(time.perf_counter() - start)

    async def tasks() -> None:
        await asyncio.gather(*(task() for _ in range(clients)))

    threads = [threading.Thread(target=client) for _ in range(clients)]
    has_tasks = isinstance(run(), dlc.Future)
    begin, processor_begin = time.perf_counter(), time.process_time()
    if has_tasks:
        asyncio.run(tasks())
    else:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    elapsed, processor_elapsed = time.perf_counter() - begin, time.process_time() - processor_begin
    p99 = sorted(latencies)[len(latencies) * 99 // 100] * 1e3
    return len(latencies) / elapsed, len(latencies) / processor_elapsed, p99


def openvino_throughput(path: Path, feed: dict[str, Any]) -> Callable[[], object] | None:
    try:
        import openvino
    except ImportError:
        return None
    compiled = openvino.Core().compile_model(str(path), "CPU", OPENVINO_SETTINGS)
    requests = threading.local()

    def run() -> object:
        if not hasattr(requests, "own"):
            requests.own = compiled.create_infer_request()
        return requests.own.infer(feed)

    return run


def onnxruntime_sessions(path: Path, feed: dict[str, Any]) -> Callable[[], object] | None:
    try:
        import onnxruntime
    except ImportError:
        return None
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = max(1, usable_cpus() // 2)
    free = [onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"]) for _ in range(2)]
    available = threading.Semaphore(len(free))

    def run() -> object:
        with available:
            session = free.pop()
            try:
                return session.run(None, feed)
            finally:
                free.append(session)

    return run


def throughput(path: Path, feed: dict[str, Any], runs: dict[str, Callable[[], object]], clients: int, seconds: float) -> None:
    """Print the throughput of a model with closed-loop clients, for dlc and its peers in turns."""
    peers = {
        "OpenVINO, throughput mode": openvino_throughput(path, feed),
        "ONNX Runtime, 2 sessions": onnxruntime_sessions(path, feed),
    }
    runs = {**runs, **{name: run for name, run in peers.items() if run is not None}}
    results: dict[str, list[tuple[float, float, float]]] = {name: [] for name in runs}
    for run in runs.values():
        run()
    for _ in range(5):
        for name, run in runs.items():
            results[name].append(closed_loop(run, clients, seconds / 5))
    print(f"{path.name}, {clients} clients")
    for name, measured in results.items():
        rate, per_processor, p99 = (statistics.median(column) for column in zip(*measured, strict=True))
        print(f"  {name:28s} {rate:9.1f} requests/s {per_processor:9.1f} per processor second   99 % {p99:8.2f} ms")


def model_throughput(path: Path, clients: int, seconds: float) -> None:
    model = dlc.compile_model(path, streams=usable_cpus())
    feed = {i.name: random_input(i) for i in model.inputs}
    throughput(path, feed, {f"dlc, {usable_cpus()} streams": lambda: model.submit(feed).result()}, clients, seconds)


def random_input(info: TensorInfo) -> np.ndarray:
    shape = [int(size) for size in info.shape]
    is_float = info.dtype.kind == "f"
    return RNG.standard_normal(shape).astype(info.dtype) if is_float else RNG.integers(0, 2, shape).astype(info.dtype)


def mlp_throughput(clients: int, seconds: float) -> None:
    """Print the throughput of a tabular network with and without batching, and that of other runtimes."""
    with TemporaryDirectory() as folder:
        path = Path(folder, "tabular_mlp.onnx")
        onnx.save(mlp_model(TABULAR_WIDTHS), path)
        model = dlc.compile_model(path, input_shapes={"x": (f"N:1..{BATCH_ROWS}", TABULAR_WIDTHS[0])}, streams=usable_cpus())
        joined = dlc.batched(model, max_batch=BATCH_ROWS, max_delay_ms=0)
        batch = {"x": RNG.standard_normal((BATCH_ROWS, TABULAR_WIDTHS[0])).astype(np.float32)}
        feed = {"x": batch["x"][:1]}
        alone = dlc.compile_model(path, input_shapes={"x": (1, TABULAR_WIDTHS[0])}, num_threads=1)
        available = threading.Semaphore(usable_cpus())

        def call() -> object:
            with available:
                return alone(feed)

        runs: dict[str, Callable[[], object]] = {
            "dlc, calls by the clients": call,
            f"dlc, {usable_cpus()} streams": lambda: model.submit(feed).result(),
            "dlc, batched": lambda: joined.submit(feed).result(),
            f"dlc, {usable_cpus()} streams, asyncio": lambda: model.submit(feed),
            "dlc, batched, asyncio": lambda: joined.submit(feed),
        }
        throughput(path, feed, runs, clients, seconds)
        single, joint = (thread_microseconds(lambda m=m, x=x: m(x)) for m, x in ((alone, feed), (model, batch)))
        print(f"  calls on one thread: 1 row {single:.1f} us, {BATCH_ROWS} rows {joint / BATCH_ROWS:.1f} us per row")


def thread_microseconds(run: Callable[[], object]) -> float:
    """Return the processor time of a call on this thread."""
    times: list[float] = []
    for _ in range(30):
        start = time.thread_time()
        for _ in range(20):
            run()
        times.append((time.thread_time() - start) / 20 * 1e6)
    return statistics.median(times)


def mlp_model(widths: Sequence[int]) -> onnx.ModelProto:
    """Return a multilayer perceptron as an ONNX model with a dynamic batch size."""
    helper, dtype = onnx.helper, onnx.TensorProto.FLOAT
    nodes: list[onnx.NodeProto] = []
    initializers: list[onnx.TensorProto] = []
    for k, (rows, columns) in enumerate(pairwise(widths)):
        initializers.append(onnx.numpy_helper.from_array(weights(rows, columns), f"w{k}"))
        nodes.append(helper.make_node("MatMul", [f"h{k}" if k else "x", f"w{k}"], [f"s{k}"]))
        nodes.append(helper.make_node("Relu", [f"s{k}"], [f"h{k + 1}"]))
    inputs = [helper.make_tensor_value_info("x", dtype, ["N", widths[0]])]
    outputs = [helper.make_tensor_value_info(f"h{len(widths) - 1}", dtype, ["N", widths[-1]])]
    graph = helper.make_graph(nodes, "mlp", inputs, outputs, initializers)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)


def mlp(x: Any, layers: Any) -> Any:
    for w in layers:
        x = dnp.maximum(x @ w, 0)
    return x


def weights(*shape: int) -> np.ndarray:
    return (RNG.standard_normal(shape) / np.sqrt(shape[-2])).astype(np.float32)


def batching(width: int, clients: int, seconds: float) -> None:
    """Print the throughput of a tabular network with and without batching, with requests in flight as for many clients."""
    layers = [weights(256, width), weights(width, width), weights(width, 16)]
    print(f"a network of {sum(w.nbytes for w in layers) >> 20} MiB, {16 * clients} requests in flight")
    function = dlc.jit(lambda x: mlp(x, layers), dynamic={"x": {0: "N:1..256"}})
    model = function.lower(np.zeros((2, 256), np.float32)).compile()
    x = RNG.standard_normal((1, 256)).astype(np.float32)
    joined = dlc.batched(model, max_batch=64, max_delay_ms=0)
    for name, submit in (("single calls", model.submit), ("batched", joined.submit)):
        measured = measure_throughput(lambda submit=submit: submit(x), 16 * clients, seconds)
        rate, p99 = measured.requests_per_second, measured.percentile(99) * 1e3
        print(f"  {name:28s} {rate:9.1f} requests/s   99 % {p99:8.2f} ms")


def inception_weights(inputs: int, first: int, *widths: int) -> list[np.ndarray]:
    """Return the weights of the convolutions of an Inception block: of 1x1, 1x1 3x3, 1x1 3x3, and 1x1 after a pool."""
    reduce_3, out_3, reduce_5, out_5, pooled = widths
    shapes = [(1, inputs, first), (1, inputs, reduce_3), (3, reduce_3, out_3), (1, inputs, reduce_5), (3, reduce_5, out_5)]
    return [weights(size, size, rows, columns) for size, rows, columns in (*shapes, (1, inputs, pooled))]


def inception(x: Any, blocks: Sequence[Sequence[np.ndarray]]) -> Any:
    """Return the output of Inception blocks as in GoogLeNet, with a pool of stride 2 between the resolutions."""
    for k, block in enumerate(blocks):
        if k in INCEPTION_POOLS:
            x = nn.max_pool(x, 3, 2, padding="same")
        first, reduce_3, out_3, reduce_5, out_5, pooled = (lambda x, w=w: nn.relu(nn.conv(x, w, padding="same")) for w in block)
        branches = [first(x), out_3(reduce_3(x)), out_5(reduce_5(x)), pooled(nn.max_pool(x, 3, 1, padding="same"))]
        x = dnp.concatenate(branches, axis=-1)
    return x


def inter_op_cases() -> dict[str, tuple[Callable[..., Any], tuple[np.ndarray, ...]]]:
    """Return functions with independent kernels, and chains, which have none."""
    cases: dict[str, tuple[Callable[..., Any], tuple[np.ndarray, ...]]] = {}
    for rows, width in ((1, 64), (16, 64), (16, 128)):
        nets = [[weights(width, width) for _ in range(5)] for _ in range(8)]
        cases[f"8 nets, {rows}x{width}"] = lambda x, nets=nets: sum(mlp(x, net) for net in nets), (weights(rows, width),)
    for rows, width in ((1, 128), (8, 128)):
        towers = [[weights(width, width) for _ in range(6)] for _ in range(2)]
        cases[f"two towers, {rows}x{width}"] = (
            lambda x, y, towers=towers: dnp.sum(mlp(x, towers[0]) * mlp(y, towers[1]), axis=1),
            (weights(rows, width), weights(rows, width)),
        )
    for size, widths in ((14, INCEPTION_WIDTHS[:1]), (7, INCEPTION_WIDTHS[-2:]), (28, INCEPTION_WIDTHS)):
        blocks = [inception_weights(*block) for block in widths]
        image = RNG.standard_normal((1, size, size, widths[0][0])).astype(np.float32)
        cases[f"{len(widths)} inception, {size}x{size}"] = lambda x, blocks=blocks: inception(x, blocks), (image,)
    for rows, width in ((1, 64), (32, 128)):
        chain = [weights(width, width) for _ in range(12)]
        cases[f"chain, {rows}x{width}"] = lambda x, chain=chain: mlp(x, chain), (weights(rows, width),)
    return cases


def inter_op(threads: int, seconds: float) -> None:
    """Print the time of calls with and without sections, interleaved: the 10th percentile, when the other cores are free.

    `sections` is the number of sections in the host program; without any, both programs are the same. The bound is the speedup
    of a schedule in which no thread waits: `threads` times the time without sections, over the time on one thread.
    """
    for name, (function, arguments) in inter_op_cases().items():
        settings = {"off": ("off", threads), "auto": ("auto", threads), "one": ("off", 1)}
        models = {
            key: dlc.jit(function, inter_op=mode, num_threads=count).lower(*arguments).compile()
            for key, (mode, count) in settings.items()
        }
        times: dict[str, list[float]] = {mode: [] for mode in models}
        end = time.perf_counter() + seconds
        while time.perf_counter() < end:
            for mode, model in models.items():
                model(*arguments)
                start = time.perf_counter()
                for _ in range(5):
                    model(*arguments)
                times[mode].append((time.perf_counter() - start) / 5)
        off, auto, one = (float(np.percentile(times[mode], 10)) * 1e6 for mode in settings)
        parallel = [i for i in models["auto"].artifact.host.instructions if isinstance(i, Parallel)]
        sections = sum(len(instruction.sections) for instruction in parallel)
        bound = f"bound {threads * off / one:.2f} x"
        print(f"  {name:28s} off {off:8.1f} us   auto {auto:8.1f} us   {off / auto:.2f} x   {bound}   {sections} sections")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", help="submit, throughput, batching, inter-op; default: all")
    parser.add_argument("--model", type=Path, help="an ONNX model with static shapes; default: a tabular network")
    parser.add_argument("--clients", type=int, default=16)
    parser.add_argument("--seconds", type=float, default=6.0)
    options = parser.parse_args()
    parts = options.parts or ["submit", "throughput", "batching", "inter-op"]
    if "submit" in parts:
        print(f"submit: {submission_microseconds():.1f} us of processor time")
    if "throughput" in parts:
        if options.model is None:
            mlp_throughput(options.clients, options.seconds)
        else:
            model_throughput(options.model, options.clients, options.seconds)
    if "batching" in parts:
        for width in BATCHED_WIDTHS:
            batching(width, options.clients, options.seconds / 2)
    if "inter-op" in parts:
        print(f"inter-op parallelism, {usable_cpus()} threads")
        inter_op(usable_cpus(), options.seconds / 2)


if __name__ == "__main__":
    main()
