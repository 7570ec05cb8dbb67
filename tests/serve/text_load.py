"""Clients of a language model that come and go: short and long texts, disconnects and malformed requests.

    python -m tests.serve.text_load [MODEL.gguf] [--clients 16] [--seconds 600] [--streams 8]

Greedy texts of a prompt must be equal, whatever the other clients do. Reports requests, latencies of short texts, the throughput,
and the growth of memory.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from dlc.language_models.language_model import LanguageModel
from tests.language_models.models import TEXTS, write_llama
from tests.serve.test_server import Client

_SHORT_TOKENS, _LONG_TOKENS = 4, 60


@dataclass
class Report:
    """Observations of the clients.

    Attributes:
        counts: The number of requests by kind.
        latencies: Seconds of each short text.
        texts: The distinct results of each request, by its body.
        generated: The number of generated tokens.
    """

    counts: Counter[str] = field(default_factory=Counter[str])
    latencies: list[float] = field(default_factory=list[float])
    texts: dict[str, set[str]] = field(default_factory=dict[str, set[str]])
    generated: int = 0
    errors: list[str] = field(default_factory=list[str])


def run_clients(port: int, clients: int, end: float, vocabulary: tuple[int, int]) -> Report:
    """Run clients in threads until a monotonic time; prompts consist of tokens from a range."""
    report, lock = Report(), threading.Lock()

    def run(seed: int) -> None:
        rng = np.random.default_rng(seed)
        # Few distinct prompts, which all clients share.
        draws = np.random.default_rng(0)
        prompts = [[int(t) for t in draws.integers(*vocabulary, n)] for n in (2, 9, 20, 60)]
        while time.monotonic() < end:
            kind = str(rng.choice(["short", "long", "stream", "disconnect", "malformed"], p=[0.4, 0.2, 0.2, 0.1, 0.1]))
            tokens = _SHORT_TOKENS if kind == "short" else _LONG_TOKENS
            body = {"prompt": prompts[rng.integers(len(prompts))], "temperature": 0, "max_tokens": tokens}
            try:
                _request(Client(port, None), kind, body, rng, report, lock)
            except Exception as error:
                report.errors.append(f"{kind}: {type(error).__name__}: {error}")
                return

    threads = [threading.Thread(target=run, args=(seed,)) for seed in range(clients)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return report


def _request(
    client: Client, kind: str, body: dict[str, Any], rng: np.random.Generator, report: Report, lock: threading.Lock
) -> None:
    path, start = "/v1/completions", time.monotonic()
    match kind:
        case "malformed":
            bodies = [b"{", b"[]", b'{"prompt": 3}', b'{"prompt": [1000000000]}', b'{"prompt": "a", "n": 2}']
            status, _, _ = client.request("POST", path, bodies[rng.integers(len(bodies))])
            assert status == 400, status
        case "disconnect":
            client.connection.request("POST", path, json.dumps({**body, "stream": bool(rng.integers(2))}))
            time.sleep(float(rng.uniform(0, 0.02)))
            client.connection.close()
        case _:
            status, content, _ = client.request("POST", path, {**body, "stream": kind == "stream"})
            assert status == 200, (status, content)
            if kind == "stream":
                *lines, _ = [line.removeprefix("data: ") for line in content.decode().split("\n\n") if line]
                text = "".join(json.loads(line)["choices"][0]["text"] for line in lines)
            else:
                answer = json.loads(content)
                text = answer["choices"][0]["text"]
                report.generated += answer["usage"]["completion_tokens"]
            with lock:
                report.texts.setdefault(json.dumps(body), set()).add(text)
                if kind == "short":
                    report.latencies.append(time.monotonic() - start)
    with lock:
        report.counts[kind] += 1


def _resident_bytes() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * 4096


def main() -> None:
    from tests.serve.test_completions import Server

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path, nargs="?")
    parser.add_argument("--clients", type=int, default=16)
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--streams", type=int, default=8)
    arguments = parser.parse_args()
    path = arguments.model or write_llama(Path(tempfile.mkdtemp()) / "small.gguf", is_quantized=False)
    model = LanguageModel.load(path, max_texts=arguments.streams, num_threads=1, context=128)
    server = Server(model, max_pending=arguments.clients)
    vocabulary = (259, len(TEXTS)) if arguments.model is None else (300, 1000)
    run_clients(server.port, arguments.clients, time.monotonic() + arguments.seconds / 10, vocabulary)
    before, start, processor = _resident_bytes(), time.monotonic(), time.process_time()
    report = run_clients(server.port, arguments.clients, start + arguments.seconds, vocabulary)
    seconds, processor = time.monotonic() - start, time.process_time() - processor
    growth = (_resident_bytes() - before) / 1e6
    server.stop()
    differing = sum(len(texts) > 1 for texts in report.texts.values())
    latencies = np.quantile(report.latencies, [0.5, 0.99, 1]) * 1e3
    print(f"requests {dict(report.counts)}, errors {report.errors[:3]}, differing texts {differing}")
    print(f"short texts: median {latencies[0]:.0f}, p99 {latencies[1]:.0f}, maximum {latencies[2]:.0f} ms")
    print(f"{report.generated / seconds:.0f} tokens/s of wall time, {report.generated / processor:.0f} of processor time")
    print(f"memory grew by {growth:.1f} MB")


if __name__ == "__main__":
    main()
