"""Benchmark loops of small steps: dlc against JAX, C and Numba.

    python benchmarks/simulations.py [CASE …] [--dtype f64] [--seconds 2] [--compile]

Each case is written once, for `dlc` and `jax`, which have the same functions, in C (benchmarks/simulations.c, one thread), and
some for Numba. They run interleaved in one process; the median of the processor time of a call counts, all threads included. A
ratio above 1 means that dlc is faster. Results are compared with those of C. It is compiled twice: by default, gcc contracts
products and sums to fused multiply-adds; with `-ffp-contract=off` it rounds each of them, as dlc does. `--compile` also prints
the processor time of the first call. Without JAX, Numba or gcc, their columns are empty. `--gradient` compares, in dlc only,
the sum of squared results with its gradient by all float arguments, for cases that have some.
"""

from __future__ import annotations

import argparse
import ctypes
import shutil
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
from c_library import compile_c

import dlc


@dataclass(frozen=True)
class Library:
    """The functions that a case uses."""

    name: str
    np: ModuleType
    lax: Any
    transforms: Any
    # Waits for the results of a call.
    wait: Callable[[Any], Any] = lambda results: results


@dataclass(frozen=True)
class Case:
    """A function for a library, its arguments, and a version of it for Numba."""

    function: Callable[[Library], Callable[..., Any]]
    arguments: tuple[Any, ...]
    numba: Callable[..., Any] | None = None
    tolerance: float = 1e-4


RNG = np.random.default_rng(0)


def floats(*shape: int, scale: float = 1.0) -> Any:
    return (RNG.standard_normal(shape) * scale).astype(np.float32)


# The cases


def gather_while(lib: Library) -> Callable[..., Any]:
    """A walk through a table: a while loop over two integers and a gather."""

    def run(table: Any, steps: Any) -> Any:
        def step(state: Any) -> Any:
            i, position = state
            return i + 1, table[position]

        return lib.lax.while_loop(lambda state: state[0] < steps, step, (np.int32(0), np.int32(1)))[1]

    return run


def gather_while_loops(table: Any, steps: Any) -> Any:
    position = 1
    for _ in range(steps.item()):
        position = table[position]
    return position


def fill_forward(lib: Library) -> Callable[..., Any]:
    """A recurrence that writes each value to an array in the carry."""

    def run(x: Any) -> Any:
        return lib.lax.fori_loop(0, x.shape[0] - 1, lambda t, x: x.at[t + 1].set(x[t] * 0.99 + 0.1), x)

    return run


def fill_forward_loops(x: Any) -> Any:
    y = x.copy()
    for t in range(len(x) - 1):
        y[t + 1] = y[t] * np.float32(0.99) + np.float32(0.1)
    return y


def scan_writes_carry(lib: Library) -> Callable[..., Any]:
    """The derivative along a direction of a scan that writes its carry."""

    def simulate(x: Any) -> Any:
        def step(x: Any, i: Any) -> Any:
            return x.at[i].set(lib.np.sin(x[i - 1]) * 2 + x[i]), ()

        return lib.lax.scan(step, x, np.arange(1, x.shape[0]))[0]

    return lambda x, v: lib.transforms.jvp(simulate, (x,), (v,))


def stacked_scalars(lib: Library) -> Callable[..., Any]:
    """A scan that stacks one scalar per step."""

    def run(x: Any) -> Any:
        def step(state: Any, _: Any) -> Any:
            state = 3.7 * state * (1 - state)
            return state, state

        return lib.lax.scan(step, x, None, length=10_000)[1]

    return run


def stacked_scalars_loops(x: Any) -> Any:
    x = np.float32(x.item())
    y = np.empty(10_000, np.float32)
    for i in range(10_000):
        x = np.float32(3.7) * x * (np.float32(1) - x)
        y[i] = x
    return y


def row_products(lib: Library) -> Callable[..., Any]:
    """Rows of an array from the previous rows, by a product with a matrix of 64 × 64."""

    def run(x: Any, w: Any) -> Any:
        return lib.lax.fori_loop(1, x.shape[0], lambda t, x: x.at[t].set(lib.np.tanh(x[t - 1] @ w)), x)

    return run


def small_matrices(lib: Library) -> Callable[..., Any]:
    """Rotations of a frame: a carry of 3 × 3 over 2,000 steps."""

    def run(frame: Any, rates: Any) -> Any:
        return lib.lax.scan(lambda m, r: (m + (m @ r) * 0.01, ()), frame, rates)[0]

    return run


def differences_gradient(lib: Library) -> Callable[..., Any]:
    """The gradient of the sum of squared differences of neighbors in a volume."""

    def energy(x: Any) -> Any:
        return sum(((lib.np.diff(x, axis=axis)) ** 2).sum() for axis in range(3))

    return lib.transforms.grad(energy)


def n_body(lib: Library) -> Callable[..., Any]:
    """Leapfrog steps of 8 bodies."""

    def acceleration(x: Any, masses: Any) -> Any:
        d = x[None] - x[:, None]
        r2 = (d * d).sum(-1) + 1e-2
        return (d * (masses[None] / (r2 * lib.np.sqrt(r2)))[..., None]).sum(1)

    def run(x: Any, v: Any, masses: Any) -> Any:
        def step(state: Any, _: Any) -> Any:
            x, v = state
            v = v + 0.001 * acceleration(x, masses)
            return (x + 0.001 * v, v), ()

        return lib.lax.scan(step, (x, v), None, length=1000)[0]

    return run


def hodgkin_huxley(lib: Library) -> Callable[..., Any]:
    """A cable of compartments with the Hodgkin–Huxley membrane, explicit Euler, 2,000 steps."""
    np_ = lib.np

    def run(v: Any, m: Any, h: Any, n: Any) -> Any:
        def step(state: Any, _: Any) -> Any:
            v, m, h, n = state
            a_m = 0.1 * (v + 40) / (1 - np_.exp(-(v + 40) / 10))
            b_m = 4 * np_.exp(-(v + 65) / 18)
            a_h = 0.07 * np_.exp(-(v + 65) / 20)
            b_h = 1 / (1 + np_.exp(-(v + 35) / 10))
            a_n = 0.01 * (v + 55) / (1 - np_.exp(-(v + 55) / 10))
            b_n = 0.125 * np_.exp(-(v + 65) / 80)
            current = 120 * m**3 * h * (v - 50) + 36 * n**4 * (v + 77) + 0.3 * (v + 54.4)
            left, right = np_.concatenate([v[:1], v[:-1]]), np_.concatenate([v[1:], v[-1:]])
            v = v + 0.005 * (10 - current + 2 * (left - 2 * v + right))
            m, h, n = (x + 0.005 * (a * (1 - x) - b * x) for x, a, b in ((m, a_m, b_m), (h, a_h, b_h), (n, a_n, b_n)))
            return (v, m, h, n), v[0]

        return lib.lax.scan(step, (v, m, h, n), None, length=2000)

    return run


def lorenz_step(x: Any, y: Any, z: Any) -> Any:
    return 10 * (y - x), x * (28 - z) - y, x * y - 8 / 3 * z


def lorenz_ensemble(lib: Library) -> Callable[..., Any]:
    """10,000 Lorenz systems by vmap, 500 steps of Heun's method."""

    def simulate(x: Any, y: Any, z: Any) -> Any:
        def step(state: Any, _: Any) -> Any:
            first = lorenz_step(*state)
            second = lorenz_step(*(s + 0.005 * d for s, d in zip(state, first, strict=True)))
            return tuple(s + 0.0025 * (a + b) for s, a, b in zip(state, first, second, strict=True)), ()

        return lib.lax.scan(step, (x, y, z), None, length=500)[0]

    return lib.transforms.vmap(simulate)


def lorenz_ensemble_loops(x: Any, y: Any, z: Any) -> Any:
    x, y, z = x.copy(), y.copy(), z.copy()
    h = np.float32(0.005)
    for k in range(len(x)):
        a, b, c = x[k], y[k], z[k]
        for _ in range(500):
            d0, d1, d2 = np.float32(10) * (b - a), a * (np.float32(28) - c) - b, a * b - np.float32(8 / 3) * c
            p, q, r = a + h * d0, b + h * d1, c + h * d2
            e0, e1, e2 = np.float32(10) * (q - p), p * (np.float32(28) - r) - q, p * q - np.float32(8 / 3) * r
            half = np.float32(0.0025)
            a, b, c = a + half * (d0 + e0), b + half * (d1 + e1), c + half * (d2 + e2)
        x[k], y[k], z[k] = a, b, c
    return x, y, z


def newton_ensemble(lib: Library) -> Callable[..., Any]:
    """Kepler's equation for 10,000 orbits: a diverging while loop by vmap."""

    def solve(mean_anomaly: Any, eccentricity: Any) -> Any:
        def residual(e: Any) -> Any:
            return e - eccentricity * lib.np.sin(e) - mean_anomaly

        def step(state: Any) -> Any:
            e, i = state
            return e - residual(e) / (1 - eccentricity * lib.np.cos(e)), i + 1

        def running(state: Any) -> Any:
            return (abs(residual(state[0])) > 1e-5) & (state[1] < 50)

        return lib.lax.while_loop(running, step, (mean_anomaly, np.int32(0)))[0]

    return lib.transforms.vmap(solve)


def reaction_diffusion(lib: Library) -> Callable[..., Any]:
    """Gray–Scott on a grid of 512², 20 steps."""

    def laplacian(x: Any) -> Any:
        p = lib.np.pad(x, 1, mode="wrap")
        return p[:-2, 1:-1] + p[2:, 1:-1] + p[1:-1, :-2] + p[1:-1, 2:] - 4 * x

    def run(u: Any, v: Any) -> Any:
        def step(_: Any, state: Any) -> Any:
            u, v = state
            reaction = u * v * v
            return u + 0.16 * laplacian(u) - reaction + 0.04 * (1 - u), v + 0.08 * laplacian(v) + reaction - 0.1 * v

        return lib.lax.fori_loop(0, 20, step, (u, v))

    return run


def kalman(lib: Library) -> Callable[..., Any]:
    """A Kalman filter with a state of 4 and observations of 2, 1,000 steps."""

    def run(transition: Any, observation: Any, measurements: Any) -> Any:
        dtype = measurements.dtype
        eye = np.eye(4, dtype=dtype)

        def step(state: Any, z: Any) -> Any:
            mean, covariance = state
            mean, covariance = transition @ mean, transition @ covariance @ transition.T + 0.01 * eye
            s = observation @ covariance @ observation.T + 0.1 * np.eye(2, dtype=dtype)
            inverse = lib.np.stack([lib.np.stack([s[1, 1], -s[0, 1]]), lib.np.stack([-s[1, 0], s[0, 0]])])
            gain = covariance @ observation.T @ (inverse / (s[0, 0] * s[1, 1] - s[0, 1] * s[1, 0]))
            mean = mean + gain @ (z - observation @ mean)
            return (mean, (eye - gain @ observation) @ covariance), mean

        return lib.lax.scan(step, (np.zeros(4, dtype), eye), measurements)[1]

    return run


def scalar_leaves(lib: Library) -> Callable[..., Any]:
    """A scan over 60 scalar states, each coupled to its neighbors, 1,000 steps."""

    def run(*states: Any) -> Any:
        def step(states: Any, _: Any) -> Any:
            neighbors = zip(states, states[1:] + states[:1], strict=True)
            return tuple(x + 0.01 * (y * y - x) for x, y in neighbors), ()

        return sum(lib.lax.scan(step, states, None, length=1000)[0])

    return run


def scalar_leaves_gradient(lib: Library) -> Callable[..., Any]:
    """The gradient of `scalar_leaves`."""
    return lib.transforms.grad(scalar_leaves(lib), argnums=tuple(range(60)))


def adaptive_ode(lib: Library) -> Callable[..., Any]:
    """Heun's method with adaptive steps for a Van der Pol oscillator, until x crosses zero the 20th time."""
    np_ = lib.np

    def slope(x: Any, v: Any) -> Any:
        return v, 5 * (1 - x * x) * v - x

    def run(x: Any, v: Any) -> Any:
        def step(state: Any) -> Any:
            t, h, x, v, crossings = state
            a, b = slope(x, v)
            c, d = slope(x + h * a, v + h * b)
            new_x, new_v = x + h / 2 * (a + c), v + h / 2 * (b + d)
            error = np_.maximum(abs(a - c), abs(b - d)) * h / 2 / 1e-4 + 1e-6
            accepted = error < 1
            crossings = crossings + (accepted & (x * new_x < 0)).astype(np.int32)
            x, v, t = np_.where(accepted, new_x, x), np_.where(accepted, new_v, v), t + np_.where(accepted, h, 0.0)
            return t, h * np_.clip(0.9 / np_.sqrt(error), 0.2, 5.0), x, v, crossings

        start = 0 * x, 0 * x + 0.01, x, v, np.int32(0)
        return lib.lax.while_loop(lambda state: state[4] < 20, step, start)[0]

    return run


def particle_filter(lib: Library) -> Callable[..., Any]:
    """A bootstrap particle filter of 256 particles with systematic resampling, 200 observations."""
    np_ = lib.np

    def run(particles: Any, observations: Any, noise: Any, offsets: Any) -> Any:
        def step(particles: Any, inputs: Any) -> Any:
            observation, noise, offset = inputs
            particles = 0.9 * particles + noise
            weights = np_.exp(-2 * (observation - particles) ** 2)
            total = np_.cumsum(weights)
            positions = (np_.arange(256, dtype=particles.dtype) + offset) * (total[-1] / 256)
            mean = (weights * particles).sum() / total[-1]
            return particles[np_.minimum(np_.searchsorted(total, positions), 255)], mean

        return lib.lax.scan(step, particles, (observations, noise, offsets))[1]

    return run


CASES: dict[str, Case] = {
    "gather_while": Case(
        gather_while, (RNG.permutation(256).astype(np.int32), np.asarray(1 << 20, np.int32)), gather_while_loops
    ),
    "scan_writes_carry": Case(scan_writes_carry, (floats(10_000, scale=0.1), floats(10_000))),
    "fill_forward": Case(fill_forward, (floats(10_000),), fill_forward_loops),
    "stacked_scalars": Case(stacked_scalars, (np.asarray(0.3, np.float32),), stacked_scalars_loops, tolerance=np.inf),
    "row_products": Case(row_products, (floats(1000, 64), floats(64, 64, scale=0.125))),
    "small_matrices": Case(small_matrices, (np.eye(3, dtype=np.float32), floats(2000, 3, 3))),
    "differences_gradient": Case(differences_gradient, (floats(160, 160, 160),)),
    "n_body": Case(n_body, (floats(8, 3), floats(8, 3), np.abs(floats(8)) * 0.1)),
    "hodgkin_huxley": Case(hodgkin_huxley, tuple(np.full(100, x, np.float32) for x in (-65, 0.05, 0.6, 0.32)), tolerance=1e-2),
    "lorenz_ensemble": Case(lorenz_ensemble, tuple(floats(10_000) for _ in range(3)), lorenz_ensemble_loops, tolerance=np.inf),
    "newton_ensemble": Case(
        newton_ensemble, (RNG.uniform(0, 3, 10_000).astype(np.float32), RNG.uniform(0, 0.9, 10_000).astype(np.float32))
    ),
    "reaction_diffusion": Case(
        reaction_diffusion, (1 - np.abs(floats(512, 512, scale=0.1)), np.abs(floats(512, 512, scale=0.1)))
    ),
    "kalman": Case(
        kalman,
        (
            (np.eye(4) + 0.1 * np.eye(4, k=2)).astype(np.float32),
            np.eye(2, 4, dtype=np.float32),
            floats(1000, 2),
        ),
    ),
    "particle_filter": Case(
        particle_filter,
        (floats(256), floats(200), floats(200, 256, scale=0.5), RNG.uniform(0, 1, 200).astype(np.float32)),
        # Rounding changes the particles that are selected; a test compares f64 results with NumPy.
        tolerance=np.inf,
    ),
    "scalar_leaves": Case(scalar_leaves, tuple(np.asarray(x, np.float32) for x in RNG.uniform(0, 1, 60))),
    "scalar_leaves_gradient": Case(scalar_leaves_gradient, tuple(np.asarray(x, np.float32) for x in RNG.uniform(0, 1, 60))),
    "adaptive_ode": Case(adaptive_ode, (np.asarray(2, np.float32), np.asarray(0, np.float32)), tolerance=0.05),
}


# Measurement


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cases", nargs="*", default=list(CASES), metavar="CASE", help=f"of {', '.join(CASES)}")
    parser.add_argument("--dtype", choices=("f32", "f64"), default="f32", help="the type of all floats")
    parser.add_argument("--threads", type=int, default=1, help="threads of dlc; JAX uses all, C and Numba one")
    parser.add_argument("--seconds", type=float, default=2.0, help="time per case")
    parser.add_argument("--wall", action="store_true", help="measure wall time, on an idle machine, in place of processor time")
    parser.add_argument("--compile", action="store_true", help="print the processor time of the first calls")
    parser.add_argument("--gradient", action="store_true", help="compare the sum of squared results with its gradient, in dlc")
    arguments = parser.parse_args()
    dtype = np.dtype(np.float32 if arguments.dtype == "f32" else np.float64)
    libraries = [Library("dlc", dlc.numpy, dlc.lax, dlc)]
    clock = time.perf_counter if arguments.wall else time.process_time
    if arguments.gradient:
        print("| case | sum µs | gradient µs | gradient / sum |\n|---|---|---|---|")
        for name in arguments.cases:
            if not any(np.asarray(x).dtype.kind == "f" for x in CASES[name].arguments):
                continue
            print(measure_gradient(name, CASES[name], dtype, libraries[0], arguments, clock), flush=True)
        return
    try:
        import jax

        jax.config.update("jax_enable_x64", dtype == np.float64)
        libraries.append(Library("JAX", jax.numpy, jax.lax, jax, jax.block_until_ready))
    except ImportError:
        pass
    c = {}
    if shutil.which("gcc"):
        real = f"-DREAL={'float' if arguments.dtype == 'f32' else 'double'}"
        c = {name: compile_c(Path(__file__).with_suffix(".c"), real, *options) for name, options in C_OPTIONS.items()}
    columns = [cell for other in OTHERS for cell in (f"{other} µs", f"{other} / dlc")]
    print(f"| case | dlc µs | {' | '.join(columns)} | compile s |\n|{'---|' * (3 + len(columns))}")
    for name in arguments.cases:
        print(measure(name, CASES[name], dtype, libraries, c, arguments, clock), flush=True)


C_OPTIONS = {"C": (), "C without FMA": ("-ffp-contract=off",)}
OTHERS = ("JAX", *C_OPTIONS, "Numba")


def measure(
    name: str,
    case: Case,
    dtype: np.dtype[Any],
    libraries: list[Library],
    c: dict[str, ctypes.CDLL],
    options: argparse.Namespace,
    clock: Callable[[], float],
) -> str:
    """Return the row of a case."""
    inputs = inputs_of(case, dtype)
    runs: dict[str, Callable[[], Any]] = {}
    results: dict[str, list[np.ndarray]] = {}
    compile_seconds: list[str] = []
    for library in libraries:
        jit_options = {"cache": False, "num_threads": options.threads} if library.name == "dlc" else {}
        compiled = library.transforms.jit(case.function(library), **jit_options)
        runs[library.name] = lambda compiled=compiled, wait=library.wait: wait(compiled(*inputs))
        start = time.process_time()
        results[library.name] = list(map(np.asarray, dlc.tree.leaves(runs[library.name]())))
        compile_seconds.append(f"{library.name} {time.process_time() - start:.2f}")
    for options_name, compiled_c in c.items():
        runs[options_name] = c_function(compiled_c, name, inputs, results["dlc"])
        results[options_name] = runs[options_name]()
    if case.numba is not None and dtype == np.float32:
        try:
            import numba

            compiled = numba.njit(case.numba)
            _ = compiled(*inputs)
            runs["Numba"] = lambda: compiled(*inputs)
        except ImportError:
            pass
    for other in results.keys() - {"dlc"}:
        for x, y in zip(results["dlc"], results[other], strict=True):
            error = np.max(np.abs(x.astype(np.float64) - y) / (1 + np.abs(y)))
            if not error <= case.tolerance:
                print(f"{name}: dlc and {other} differ by {error:.2g}")
    times = median_microseconds(runs, options.seconds, clock)
    cells = [f"{times['dlc']:.1f}"]
    for other in OTHERS:
        cells += [f"{times[other]:.1f}", f"{times[other] / times['dlc']:.2f}"] if other in times else ["", ""]
    return f"| {name} | {' | '.join(cells)} | {', '.join(compile_seconds) if options.compile else ''} |"


def measure_gradient(
    name: str, case: Case, dtype: np.dtype[Any], library: Library, options: argparse.Namespace, clock: Callable[[], float]
) -> str:
    """Return the row of the sum of a case's squared results and its gradient."""
    inputs, function = inputs_of(case, dtype), case.function(library)

    def total(*arguments: Any) -> Any:
        return sum((x * x).sum() for x in dlc.tree.leaves(function(*arguments)))

    floats = tuple(k for k, x in enumerate(inputs) if x.dtype.kind == "f")
    jit = dlc.jit(num_threads=options.threads, cache=False)
    compiled = {"dlc": jit(total), "gradient": jit(dlc.grad(total, argnums=floats))}
    times = median_microseconds({k: lambda f=f: f(*inputs) for k, f in compiled.items()}, options.seconds, clock)
    ratio = times["gradient"] / times["dlc"]
    return f"| {name} | {times['dlc']:.1f} | {times['gradient']:.1f} | {ratio:.2f} |"


def inputs_of(case: Case, dtype: np.dtype[Any]) -> list[np.ndarray]:
    """Return the arguments of a case, with floats of a dtype."""
    return [x.astype(dtype) if x.dtype.kind == "f" else x for x in case.arguments]


def c_function(
    library: ctypes.CDLL, name: str, inputs: list[np.ndarray], results: list[np.ndarray]
) -> Callable[[], list[np.ndarray]]:
    """Return a C function of these arrays, with results like the given ones; many scalars are one array."""
    if name.startswith("scalar_leaves"):
        inputs = [np.stack(inputs)]
    inputs = list(map(np.ascontiguousarray, inputs))
    is_one_array = len(results) == 60
    shapes = [(len(results),)] if is_one_array else [x.shape for x in results]
    function = getattr(library, name)
    function.restype = None

    def call() -> list[np.ndarray]:
        outputs = [np.empty(shape, x.dtype) for shape, x in zip(shapes, results, strict=False)]
        function(*(ctypes.c_void_p(x.ctypes.data) for x in (*inputs, *outputs)))
        return list(outputs[0]) if is_one_array else outputs

    return call


# Time of the calls of one measurement.
BATCH_SECONDS = 0.002


def median_microseconds(runs: dict[str, Callable[[], Any]], seconds: float, clock: Callable[[], float]) -> dict[str, float]:
    """Return the median time of a call of each function, in batches of calls that are interleaved.

    A call before each batch warms caches, while the threads of the previous library stop to wait by spinning.
    """
    times: dict[str, list[float]] = {name: [] for name in runs}
    counts: dict[str, int] = {}
    end = time.perf_counter() + seconds
    while time.perf_counter() < end or len(times["dlc"]) < 3:
        for name, run in runs.items():
            start = clock()
            _ = run()
            count = counts.setdefault(name, max(1, int(BATCH_SECONDS / (clock() - start))))
            start = clock()
            for _ in range(count):
                _ = run()
            times[name].append((clock() - start) / count)
    return {name: statistics.median(t) * 1e6 for name, t in times.items()}


if __name__ == "__main__":
    main()
