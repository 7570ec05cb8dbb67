"""Pages of whole programs in a browser: python benchmarks/explorer_pages.py [MODEL …].

Each MODEL of the tests' skeletons (resnet50, bert_base_128), a function with a scan, one of which data decides a size, and a
training step with its optimiser:
the seconds of processors that compiling it takes, and compiling it with its page; megabytes of the page; and seconds until
Chromium shows it. In each page the first convolution or product is followed to its vector loop, by a click and by keys; what a
reader of screens, the keyboard or weak eyes cannot use is looked for in light and dark. Exits with 1 where any of that fails,
or a page takes twice as long as compiling, has over 15 MB, opens in over 2 s, or fetches anything.
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

from tests.explore.opened import VIEWS, Opened, chromium  # noqa: E402
from tests.models import skeletons  # noqa: E402

ROUNDS = 3
OPTIONS = Options.of(num_threads=1, cache=False)
# The view that there is a picture of, where it is not the graph.
SHOWN = {"bert_base_128": "kernels"}
Subject = tuple[Program, Sequence[np.ndarray]]


def network(name: str) -> Subject:
    """A model of full size, with random weights."""
    proto = skeletons.filled(name)
    imported = import_model(proto)
    return Program(imported.module, imported.weights, name), list(skeletons.inputs(name, proto).values())


def recurrence() -> Subject:
    """64 steps of 4 rows of 256 numbers."""

    def run(w: Any, xs: Any) -> Any:
        def step(h: Any, x: Any) -> Any:
            h = dnp.tanh(h @ w + x)
            return h, h.sum()

        return lax.scan(step, dnp.zeros((4, 256)), xs)

    rng = np.random.default_rng(0)
    return of_function(run, rng.standard_normal((256, 256), np.float32), rng.standard_normal((64, 4, 256), np.float32))


def kept_rows() -> Subject:
    """A dense layer on the rows that have a sum above zero."""

    def kept(x: Any, w: Any) -> Any:
        return dnp.tanh(x[x.sum(axis=1) > 0] @ w)

    rng = np.random.default_rng(0)
    return of_function(kept, rng.standard_normal((512, 256), np.float32), rng.standard_normal((256, 256), np.float32))


def loss(weights: Any, x: Any, labels: Any) -> Any:
    for w in weights[:-1]:
        x = nn.relu(x @ w)
    return nn.softmax_cross_entropy(x @ weights[-1], labels).mean()


def example() -> tuple[list[np.ndarray], np.ndarray, np.ndarray]:
    """The weights of three dense layers, and rows for them with their labels."""
    rng = np.random.default_rng(0)
    weights = [rng.standard_normal(pair, np.float32) * np.float32(0.05) for pair in pairwise((784, 512, 512, 10))]
    return weights, rng.standard_normal((128, 784), np.float32), rng.integers(0, 10, 128)


def training_step() -> Subject:
    """A step of AdamW on a network of three dense layers."""
    optimizer = optim.adamw(1e-3, weight_decay=0.01)

    def step(weights: Any, state: Any, x: Any, labels: Any) -> Any:
        value, gradients = dlc.value_and_grad(loss)(weights, x, labels)
        return value, optimizer.update(gradients, state, weights)

    weights, x, labels = example()
    return of_function(step, weights, optimizer.init(weights), x, labels)


def of_function(function: Callable[..., Any], *arguments: Any) -> Subject:
    leaves, _ = flatten((arguments, {}))
    return dlc.jit(function).lower(*arguments).program, [np.asarray(leaf) for leaf in leaves]


def of_processors() -> float:
    """The seconds that this process and those that it has waited for have had, to the microsecond."""
    used = [getrusage(who) for who in (RUSAGE_SELF, RUSAGE_CHILDREN)]
    return sum(u.ru_utime + u.ru_stime for u in used)


def measure(browser: Any, name: str, subject: Subject, file: Path, pictures: Path | None, is_first: bool) -> bool:
    """Prints a row; whether all is as it should be. Of the first there is a picture of each view, of others a dark one."""
    program, inputs = subject
    makers = (lambda: compile(program, "cpu", OPTIONS), lambda: explore(program, "cpu", OPTIONS, inputs=inputs).save(file))
    seconds = [inf, inf]
    # In turns, and the least: who else is at work on the machine takes caches and clock away.
    for k, make in [*enumerate(makers)] * ROUNDS:
        began = of_processors()
        make()
        seconds[k] = min(seconds[k], of_processors() - began)
    size, opened = file.stat().st_size / 1e6, Opened(browser, file)
    kept = {
        "it takes too much": seconds[1] < 2 * seconds[0],
        "it has too much": size < 15,
        "it opens too late": opened.seconds < 2,
        "it does not lead to the vector loop": any("vector.fma" in line for line in opened.to_vector_loop()),
        "keys do not lead to a kernel": opened.by_keys().startswith("kernel "),
        "keys go round in another order": all(map(opened.tabs_in_order, VIEWS)),
    }
    wrong = [*(problem for problem, is_kept in kept.items() if not is_kept), *opened.audit(), *opened.wrong]
    if pictures is not None and is_first:
        opened.pictures(pictures)
    elif pictures is not None:
        opened.picture(SHOWN.get(name, "graph"), pictures / f"explorer-{name.split()[-1]}.png", dark=True)
    opened.page.close()
    row = f"{seconds[0]:.2f} | {seconds[1]:.2f} | {size:.2f} | {opened.seconds:.2f} | {'; '.join(wrong) or 'as it should be'}"
    print(f"| {name} | {row} |", flush=True)
    return not wrong


def compared(browser: Any, file: Path, pictures: Path) -> None:
    """A picture of the gradient of a loss beside the loss."""
    subjects = {"gradient": dlc.grad(loss), "loss": loss}
    pages = []
    for name, function in subjects.items():
        program, inputs = of_function(function, *example())
        pages.append(replace(explore(program, "cpu", OPTIONS, inputs=inputs), label=name))
    pages[0].against(pages[1]).save(file)
    opened = Opened(browser, file)
    opened.picture("compare", pictures / "explorer-compared.png")
    opened.page.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", default=["resnet50", "bert_base_128"])
    parser.add_argument(
        "--pictures", type=Path, metavar="FOLDER", help="write those of docs/explorer.md, light of the first program"
    )
    arguments = parser.parse_args()
    models, pictures = arguments.models, arguments.pictures
    subjects = {name: (lambda name=name: network(name)) for name in models}
    subjects |= {"a scan": recurrence, "a choice of rows": kept_rows, "a training step": training_step}
    print("| program | compiled, s | with its page, s | MB | opens, s | |\n|---|---|---|---|---|---|")
    with chromium() as browser, TemporaryDirectory() as folder:
        # What the first compilation of a process finds for the others, and the machine's limits, are not of any of them.
        explore(*of_function(lambda x: x + 1, np.ones(4, np.float32))[:1], "cpu", OPTIONS, inputs=[np.ones(4, np.float32)])
        found = [
            measure(browser, name, make(), Path(folder) / "page.html", pictures, is_first=k == 0)
            for k, (name, make) in enumerate(subjects.items())
        ]
        if pictures is not None:
            compared(browser, Path(folder) / "both.html", pictures)
    sys.exit(0 if all(found) else 1)


if __name__ == "__main__":
    main()
