"""Calls whose results are recorded: `m` is the module, `k` the key of seed 42, `x` and `p` are arrays.

python -m tests.random.recorded_calls      records them with JAX, where it is installed
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

RECORDED = Path(__file__).parent / "numbers.json"
CALLS = (
    "m.key(0)", "m.key(7)", "m.key(2**31 - 1)",
    "m.split(k)", "m.split(k, 3)", "m.split(k, (2, 2))", "m.split(m.split(k)[1], 2)",
    "m.fold_in(k, 0)", "m.fold_in(k, 12345)", "m.fold_in(k, 2**32 - 1)",
    "m.bits(k)", "m.bits(k, (3, 5))", "m.bits(k, (7,), 'uint8')", "m.bits(k, (7,), 'uint16')",
    "m.uniform(k)", "m.uniform(k, (2, 3, 4))", "m.uniform(k, (9,), 'float16')", "m.uniform(k, (9,), 'bfloat16')",
    "m.uniform(k, (9,), 'float32', -3.0, 5.5)",
    "m.normal(k)", "m.normal(k, (5, 7))", "m.normal(k, (20,), 'float16')", "m.normal(k, (20,), 'bfloat16')",
    "m.truncated_normal(k, -2.0, 2.0, (20,))", "m.truncated_normal(k, x[:4], x[:4] + 0.5)",
    "m.bernoulli(k, 0.3, (20,))", "m.bernoulli(k, p)",
    "m.gumbel(k, (20,))", "m.exponential(k, (20,))", "m.laplace(k, (20,))", "m.logistic(k, (20,))", "m.cauchy(k, (9,))",
    "m.gamma(k, p * 10)", "m.gamma(k, 0.05, (20,))", "m.loggamma(k, p, (3, 4))", "m.beta(k, p, 2.0, (3, 4))",
    "m.dirichlet(k, p)", "m.chisquare(k, 3.0, shape=(9,))", "m.t(k, p + 4, (3, 4))",
    "m.poisson(k, p * 20, (3, 4))", "m.poisson(k, p * 200)", "m.poisson(k, 0.0, (2,))",
    "m.multivariate_normal(k, x[:2], x[6:10].reshape(2, 2) @ x[6:10].reshape(2, 2).T, (5,))",
    "m.randint(k, (20,), 0, 10)", "m.randint(k, (20,), -1000000, 2000000000)", "m.randint(k, (9,), 5, 5)",
    "m.randint(k, (20,), 0, 256, 'uint8')", "m.randint(k, (20,), -128, 128, 'int8')", "m.randint(k, (20,), -3, 99, 'int16')",
    "m.permutation(k, 11)", "m.permutation(k, 2000)[:20]", "m.permutation(k, x)", "m.permutation(k, x.reshape(4, 3), axis=1)",
    "m.permutation(k, x.reshape(4, 3), axis=1, independent=True)",
    "m.choice(k, 9, (10,))", "m.choice(k, x, (2, 3))", "m.choice(k, x, (5,), replace=False)", "m.choice(k, 4, (12,), p=p)",
    "m.choice(k, 4, (3,), replace=False, p=p)", "m.choice(k, x.reshape(4, 3), (2,), axis=1)",
    "m.categorical(k, x)", "m.categorical(k, x.reshape(4, 3))", "m.categorical(k, x.reshape(4, 3), axis=0)",
    "m.categorical(k, x.reshape(4, 3), shape=(3, 4))",
)  # fmt: skip
# JAX draws these with 64-bit types enabled.
CALLS_64 = (
    "m.key(2**40 + 3)", "m.key(-5)", "m.bits(k, (5,), 'uint64')", "m.uniform(k, (9,), 'float64')", "m.normal(k, (30,), 'float64')",
    "m.randint(k, (9,), -2**40, 2**62, 'int64')", "m.randint(k, (9,), 0, 2**32, 'uint32')",
)  # fmt: skip


def called(call: str, module: Any, key: Any, of: Any = np.asarray) -> Any:
    """Evaluate a call on arrays created by `of`."""
    x, p = np.linspace(-2, 2, 12, dtype=np.float32), np.array([0.1, 0.2, 0.3, 0.4], np.float32)
    return eval(call, {"m": module, "k": key, "x": of(x), "p": of(p)})


def record() -> None:
    import jax

    numbers: dict[str, Any] = {}
    for calls, wide in ((CALLS, False), (CALLS_64, True)):
        jax.config.update("jax_enable_x64", wide)
        for call in calls:
            result = called(call, jax.random, jax.random.key(42), jax.numpy.asarray)
            is_key = jax.numpy.issubdtype(result.dtype, jax.dtypes.prng_key)
            array = np.asarray(jax.random.key_data(result) if is_key else result)
            numbers[call] = [
                str(array.dtype),
                array.astype(np.float64).tolist() if array.dtype.kind not in "biu" else array.tolist(),
            ]
    lines = ",\n".join(f"{json.dumps(call)}: {json.dumps(value)}" for call, value in numbers.items())
    RECORDED.write_text(f"{{\n{lines}\n}}\n")


if __name__ == "__main__":
    record()
