"""Random kernels of the loops stage: machine code and the evaluator compute the same bits."""

from __future__ import annotations

import random

import numpy as np
import pytest

from dlc.backends.reference import evaluate_function
from dlc.target import Target
from tests.backends.cpu.native import LEVELS, grid, parse_kernel, run

POINTS = 3
SIDE = 104


class Program:
    """Text of a random kernel over vectors of one shape, floats, integers, conditions and indices.

    `values` holds the names in scope by type; a region starts with a copy. A plain one has no regions and chooses no integers:
    several registers may be one value in it.
    """

    def __init__(self, seed: int, *, plain: bool) -> None:
        self.random, self.plain = random.Random(seed), plain
        self.rows, self.columns = self.random.choice([1, 2, 3]), self.random.choice([1, 3, 8, 16, 17, 20, 37, 64, 100])
        shape = f"{self.rows}x{self.columns}"
        self.float, self.integer, self.bool = (f"vector<{shape}x{t}>" for t in ("f32", "i32", "i1"))
        self.input, self.output = f"memref<{POINTS}x{SIDE}x{SIDE}xf32>", f"memref<{POINTS}x{shape}xf32>"
        self.lines: list[str] = []
        self.count = 0
        self.values: dict[str, list[str]] = {t: [] for t in ("index", "f32", self.float, self.integer, self.bool)}

    def define(self, type: str, text: str) -> str:
        name = f"%n{self.count}"
        self.count += 1
        self.lines.append(f"{name} = {text}")
        self.values[type].append(name)
        return name

    def any(self, type: str) -> str:
        return self.random.choice(self.values[type])

    def start(self) -> None:
        for n in range(4):
            self.define("index", f"arith.constant {n} : index")
        self.values["index"].append("%p")
        self.define("f32", "arith.constant 0.5 : f32")
        self.define(self.float, f"arith.constant dense<1.5> : {self.float}")
        self.define(self.integer, f"arith.constant dense<7> : {self.integer}")
        self.read()
        self.compare()

    # Statements

    def read(self) -> None:
        """Read a tile at a small offset, with its dimensions in either order or broadcast."""
        dims = self.random.choice(["d1, d2", "d2, d1", "0, d2", "d1, 0", "d2, 0", "0, d1"])
        i, j = self.small(), self.small()
        self.define(
            self.float,
            f"vector.transfer_read %x[%p, {i}, {j}], {self.values['f32'][0]} {{in_bounds = [true, true], "
            f"permutation_map = affine_map<(d0, d1, d2) -> ({dims})>}} : {self.input}, {self.float}",
        )

    def small(self) -> str:
        return self.define("index", f"arith.remui {self.any('index')}, {self.values['index'][2]} : index")

    def compute(self) -> None:
        op = self.random.choice(["addf", "subf", "mulf", "maximumf", "minimumf"])
        self.define(self.float, f"arith.{op} {self.any(self.float)}, {self.any(self.float)} : {self.float}")

    def compute_integer(self) -> None:
        op = self.random.choice(["addi", "muli", "shli", "minsi", "xori"])
        self.define(self.integer, f"arith.{op} {self.any(self.integer)}, {self.any(self.integer)} : {self.integer}")

    def compute_index(self) -> None:
        op = self.random.choice(["addi", "muli", "subi", "maxsi"])
        wide = self.define("index", f"arith.{op} {self.any('index')}, {self.any('index')} : index")
        # Keep indices small, so that products do not overflow.
        self.define("index", f"arith.remui {wide}, {self.values['index'][3]} : index")

    def convert(self) -> None:
        if self.random.random() < 0.5:
            self.define(self.integer, f"arith.fptosi {self.any(self.float)} : {self.float} to {self.integer}")
        else:
            self.define(self.float, f"arith.sitofp {self.any(self.integer)} : {self.integer} to {self.float}")

    def compare(self) -> None:
        predicate = self.random.choice(["olt", "une", "oge"])
        self.define(self.bool, f"arith.cmpf {predicate}, {self.any(self.float)}, {self.any(self.float)} : {self.float}")

    def select(self) -> None:
        type = self.random.choice([self.float] if self.plain else [self.float, self.integer])
        self.define(type, f"arith.select {self.any(self.bool)}, {self.any(type)}, {self.any(type)} : {self.bool}, {type}")

    def broadcast(self) -> None:
        self.define(self.float, f"vector.broadcast {self.any('f32')} : f32 to {self.float}")

    def through_memory(self) -> None:
        shape = self.float[7:-1]
        name = f"%local{self.count}"
        self.lines.append(f"{name} = memref.alloca() : memref<{shape}>")
        zero = self.values["index"][0]
        bounds = "{in_bounds = [true, true]}"
        self.lines.append(
            f"vector.transfer_write {self.any(self.float)}, {name}[{zero}, {zero}] {bounds} : {self.float}, memref<{shape}>"
        )
        self.define("f32", f"memref.load {name}[{zero}, {zero}] : memref<{shape}>")
        self.define(
            self.float,
            f"vector.transfer_read {name}[{zero}, {zero}], {self.any('f32')} {bounds} : memref<{shape}>, {self.float}",
        )

    # Regions

    def region(self, depth: int, arguments: dict[str, str]) -> list[str]:
        """Generate random statements in a scope of their own; yield a value for each of `arguments`."""
        outer = self.values
        self.values = {t: list(names) for t, names in outer.items()}
        for name, type in arguments.items():
            self.values[type].append(name)
        self.statements(depth - 1)
        results = [self.any(type) for type in arguments.values()]
        self.values = outer
        return results

    def loop(self, depth: int) -> None:
        n = self.count
        self.count += 1
        types = [self.float, "index", self.integer]
        arguments = {f"%c{n}_{k}": t for k, t in enumerate(types)}
        initial = ", ".join(f"{a} = {self.any(t)}" for a, t in arguments.items())
        self.lines.append(
            f"%l{n}:3 = scf.for %i{n} = {self.any('index')} to {self.any('index')} step {self.values['index'][1]} "
            f"iter_args({initial}) -> ({', '.join(types)}) {{"
        )
        self.values["index"].append(f"%i{n}")
        results = self.region(depth, arguments)
        self.values["index"].remove(f"%i{n}")
        self.lines.append(f"scf.yield {', '.join(results)} : {', '.join(types)} }}")
        self.bind(n, types)

    def branch(self, depth: int) -> None:
        n = self.count
        self.count += 1
        types = [self.float, "index"]
        self.lines += [
            f"%t{n} = arith.cmpi slt, {self.any('index')}, {self.any('index')} : index",
            f"%l{n}:2 = scf.if %t{n} -> ({', '.join(types)}) {{",
        ]
        for closing in ("} else {", "}"):
            outer = self.values
            self.values = {t: list(names) for t, names in outer.items()}
            self.statements(depth - 1)
            self.lines.append(f"scf.yield {', '.join(map(self.any, types))} : {', '.join(types)} {closing}")
            self.values = outer
        self.bind(n, types)

    def bind(self, n: int, types: list[str]) -> None:
        for k, type in enumerate(types):
            self.values[type].append(f"%l{n}#{k}")

    def statements(self, depth: int) -> None:
        simple = [
            self.read, self.compute, self.compute, self.compute_integer, self.compute_index, self.convert, self.compare,
            self.select, self.broadcast, self.through_memory,
        ]  # fmt: skip
        for _ in range(self.random.randint(*((8, 16) if self.plain else (2, 6)))):
            if depth and self.random.random() < 0.3:
                self.random.choice([self.loop, self.branch])(depth)
            else:
                self.random.choice(simple)()

    def text(self) -> str:
        self.start()
        self.statements(0 if self.plain else 3)
        zero = self.values["index"][0]
        self.lines.append(
            f"vector.transfer_write {self.values[self.float][-1]}, %y[%p, {zero}, {zero}] {{in_bounds = [true, true]}} "
            f": {self.float}, {self.output}"
        )
        self.lines.append(
            f"vector.transfer_write {self.values[self.integer][-1]}, %z[%p, {zero}, {zero}] {{in_bounds = [true, true]}} "
            f": {self.integer}, {self.output.replace('f32', 'i32')}"
        )
        arguments = f"%x: {self.input}, %y: {self.output}, %z: {self.output.replace('f32', 'i32')}"
        return grid("\n".join(self.lines), arguments, POINTS)


@pytest.mark.parametrize("target", LEVELS)
@pytest.mark.parametrize("plain", [False, True], ids=["any", "plain"])
@pytest.mark.parametrize("seed", range(6))
def test_machine_code_agrees_with_the_evaluator(seed: int, plain: bool, target: Target) -> None:
    program = Program(seed, plain=plain)
    kernel = parse_kernel(program.text())
    x = np.random.default_rng(seed).integers(-9, 9, (POINTS, SIDE, SIDE)).astype(np.float32) / 4
    shape = (POINTS, program.rows, program.columns)
    arrays = [x, np.zeros(shape, np.float32), np.zeros(shape, np.int32)]
    expected = [a.copy() for a in arrays]
    evaluate_function(kernel, expected)
    for actual, wanted in zip(run(kernel, arrays, target), expected, strict=True):
        np.testing.assert_array_equal(actual, wanted)
