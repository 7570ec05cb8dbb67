"""Test and measure explorer pages in a browser: python benchmarks/explorer_pages.py [MODEL …] [--screenshots FOLDER].

MODEL is a name of tests/models/skeletons (default: resnet50 and bert_base_128). Further programs are a scan, a function with a
data-dependent size, and a training step. Prints the processor time of compiling with and without the page, the size of the page
in MB, and the seconds until Chromium shows it. On each page the first convolution or matrix product is followed to its vector
loop, by mouse and by keyboard; accessibility is checked in light and dark mode. Exits with status 1 if any check fails, or a
page doubles the compile time, exceeds 15 MB, takes more than 2 s to open, or fetches anything.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import pairwise
from math import inf
from pathlib import Path
from resource import RUSAGE_CHILDREN, RUSAGE_SELF, getrusage
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

import dlc
import dlc.numpy as dnp
from dlc import lax, nn, optim
from dlc.compiler import Program, compile
from dlc.explore import explore
from dlc.frontend.onnx import import_model
from dlc.frontend.pytree import flatten
from dlc.options import Options

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))

from tests.explore.browser_page import VIEWS, Opened, chromium  # noqa: E402
from tests.models import skeletons  # noqa: E402

REPEATS = 3
OPTIONS = Options.of(num_threads=1, cache=False)
# Views of the screenshots of programs; the default is the graph.
SCREENSHOT_VIEW = {"bert_base_128": "kernels"}
ProgramAndInputs = tuple[Program, Sequence[np.ndarray]]


def network(name: str) -> ProgramAndInputs:
    """Return a full-size model with random weights."""
    proto = skeletons.filled(name)
    imported = import_model(proto)
    return Program(imported.module, imported.weights, name), list(skeletons.inputs(name, proto).values())


def recurrence() -> ProgramAndInputs:
    """Return a scan of 64 steps over 4 rows of 256 elements."""

    def run(w: Any, xs: Any) -> Any:
        def step(h: Any, x: Any) -> Any:
            h = dnp.tanh(h @ w + x)
            return h, h.sum()

        return lax.scan(step, dnp.zeros((4, 256)), xs)

    rng = np.random.default_rng(0)
    return subject_of(run, rng.standard_normal((256, 256), np.float32), rng.standard_normal((64, 4, 256), np.float32))


def data_dependent_rows() -> ProgramAndInputs:
    """Return a dense layer on the rows with a positive sum."""

    def select_and_apply(x: Any, w: Any) -> Any:
        return dnp.tanh(x[x.sum(axis=1) > 0] @ w)

    rng = np.random.default_rng(0)
    return subject_of(
        select_and_apply, rng.standard_normal((512, 256), np.float32), rng.standard_normal((256, 256), np.float32)
    )


def loss(weights: Any, x: Any, labels: Any) -> Any:
    for w in weights[:-1]:
        x = nn.relu(x @ w)
    return nn.softmax_cross_entropy(x @ weights[-1], labels).mean()


def example_batch() -> tuple[list[np.ndarray], np.ndarray, np.ndarray]:
    """Return the weights of three dense layers, and a batch of inputs with labels."""
    rng = np.random.default_rng(0)
    weights = [rng.standard_normal(pair, np.float32) * np.float32(0.05) for pair in pairwise((784, 512, 512, 10))]
    return weights, rng.standard_normal((128, 784), np.float32), rng.integers(0, 10, 128)


def training_step() -> ProgramAndInputs:
    """Return a training step with AdamW for a network of three dense layers."""
    optimizer = optim.adamw(1e-3, weight_decay=0.01)

    def step(weights: Any, state: Any, x: Any, labels: Any) -> Any:
        value, gradients = dlc.value_and_grad(loss)(weights, x, labels)
        return value, optimizer.update(gradients, state, weights)

    weights, x, labels = example_batch()
    return subject_of(step, weights, optimizer.init(weights), x, labels)


def subject_of(function: Callable[..., Any], *arguments: Any) -> ProgramAndInputs:
    leaves, _ = flatten((arguments, {}))
    return dlc.jit(function).lower(*arguments).program, [np.asarray(leaf) for leaf in leaves]


def processor_seconds() -> float:
    """Return the processor time of this process and of its finished children."""
    usages = [getrusage(usage) for usage in (RUSAGE_SELF, RUSAGE_CHILDREN)]
    return sum(u.ru_utime + u.ru_stime for u in usages)


def measure(browser: Any, name: str, subject: ProgramAndInputs, file: Path, screenshots: Path | None, is_first: bool) -> bool:
    """Print a row for a program and return True if all checks pass.

    Writes screenshots of every view for the first program, and one in dark mode for each other program.
    """
    program, inputs = subject
    producers = (lambda: compile(program, "cpu", OPTIONS), lambda: explore(program, "cpu", OPTIONS, inputs=inputs).save(file))
    seconds = [inf, inf]
    # Interleave and take the fastest: other load on the machine only adds time.
    for k, make in [*enumerate(producers)] * REPEATS:
        start = processor_seconds()
        make()
        seconds[k] = min(seconds[k], processor_seconds() - start)
    size, page = file.stat().st_size / 1e6, Opened(browser, file)
    checks = {
        "the page doubles the compile time": seconds[1] < 2 * seconds[0],
        "the page is larger than 15 MB": size < 15,
        "the page opens in more than 2 s": page.seconds < 2,
        "the vector loop cannot be reached": any("vector.fma" in line for line in page.to_vector_loop()),
        "a kernel cannot be reached by keyboard": page.by_keys().startswith("kernel "),
        "the tab order differs from the visual order": all(map(page.tabs_in_order, VIEWS)),
    }
    problems = [*(problem for problem, passed in checks.items() if not passed), *page.audit(), *page.wrong]
    if screenshots is not None and is_first:
        page.screenshots(screenshots)
    elif screenshots is not None:
        page.screenshot(SCREENSHOT_VIEW.get(name, "graph"), screenshots / f"explorer-{name.split()[-1]}.png", dark=True)
    page.page.close()
    row = f"{seconds[0]:.2f} | {seconds[1]:.2f} | {size:.2f} | {page.seconds:.2f} | {'; '.join(problems) or 'passed'}"
    print(f"| {name} | {row} |", flush=True)
    return not problems


def compare_pages(browser: Any, file: Path, screenshots: Path) -> None:
    """Write a screenshot of the comparison of a loss with its gradient."""
    subjects = {"gradient": dlc.grad(loss), "loss": loss}
    pages = []
    for name, function in subjects.items():
        program, inputs = subject_of(function, *example_batch())
        pages.append(replace(explore(program, "cpu", OPTIONS, inputs=inputs), label=name))
    pages[0].against(pages[1]).save(file)
    page = Opened(browser, file)
    page.screenshot("compare", screenshots / "explorer-compared.png")
    page.page.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", default=["resnet50", "bert_base_128"])
    parser.add_argument("--screenshots", type=Path, metavar="FOLDER", help="write the images of docs/explorer.md")
    arguments = parser.parse_args()
    models, screenshots = arguments.models, arguments.screenshots
    subjects = {name: (lambda name=name: network(name)) for name in models}
    # The last word of a name is part of the file name of its screenshot.
    subjects |= {"a scan": recurrence, "selected rows": data_dependent_rows, "a training step": training_step}
    print("| program | compile s | with page s | MB | open s | |\n|---|---|---|---|---|---|")
    with chromium() as browser, TemporaryDirectory() as folder:
        # Warm up: import modules and measure the machine's limits, which is shared by all programs.
        explore(*subject_of(lambda x: x + 1, np.ones(4, np.float32))[:1], "cpu", OPTIONS, inputs=[np.ones(4, np.float32)])
        passed = [
            measure(browser, name, make(), Path(folder) / "page.html", screenshots, is_first=k == 0)
            for k, (name, make) in enumerate(subjects.items())
        ]
        if screenshots is not None:
            compare_pages(browser, Path(folder) / "both.html", screenshots)
    sys.exit(0 if all(passed) else 1)


if __name__ == "__main__":
    main()
