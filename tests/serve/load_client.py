"""A client of the mixed load, as a process: `python -m tests.serve.load_client PORT SEED SECONDS`.

It sends requests with random rows to the model `scale`, whose factor is that of any version that is served, and checks each
result. Some requests have a deadline, and some connections are closed before the answer. It prints the counts of status codes as
JSON, and exits with status 1 at a wrong result.
"""

from __future__ import annotations

import http.client
import json
import sys
import time
from collections import Counter

import numpy as np

COLUMNS = 64
FACTORS = (2.0, 3.0)
TOKEN = "secret"
# Busy, late and accepted requests: all others are errors.
_STATUSES = (200, 429, 504)


def send(connection: http.client.HTTPConnection, x: np.ndarray, timeout_microseconds: int | None) -> None:
    tensor = {"name": "x", "datatype": "FP32", "shape": list(x.shape), "parameters": {"binary_data_size": x.nbytes}}
    parameters = {} if timeout_microseconds is None else {"timeout": timeout_microseconds}
    outputs = [{"name": "result", "parameters": {"binary_data": True}}]
    head = json.dumps({"inputs": [tensor], "outputs": outputs, "parameters": parameters}).encode()
    headers = {"Authorization": f"Bearer {TOKEN}", "Inference-Header-Content-Length": str(len(head))}
    connection.request("POST", "/v2/models/scale/infer", head + x.tobytes(), headers)


def check(response: http.client.HTTPResponse, content: bytes, x: np.ndarray) -> None:
    """Raise AssertionError unless the answer is the product of the request's rows and one factor, or says why there is none."""
    assert response.status in _STATUSES, (response.status, content)
    if response.status == 200:
        y = np.frombuffer(content[int(response.headers["Inference-Header-Content-Length"]) :], np.float32).reshape(x.shape)
        assert any(np.array_equal(y, np.float32(factor) * x) for factor in FACTORS), (x[0, 0], y[0, 0])


def main() -> None:
    port, seed, seconds = int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])
    random, outcomes = np.random.default_rng(seed), Counter[str]()
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        x = random.standard_normal((int(random.integers(1, 9)), COLUMNS), np.float32)
        send(connection, x, int(random.integers(1, 3000)) if random.random() < 0.2 else None)
        if random.random() < 0.05:
            connection.close()
            outcomes["disconnected"] += 1
            continue
        response = connection.getresponse()
        check(response, response.read(), x)
        outcomes[str(response.status)] += 1
    print(json.dumps(outcomes))


if __name__ == "__main__":
    main()
