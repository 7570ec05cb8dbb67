"""Every elementwise op on every element type, on full, ragged and scalar registers, compared with the reference evaluator."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from dlc.backends.reference import evaluate_function
from dlc.emission.llvm.kernel import emit_kernel
from dlc.target import CPU_LEVELS, Target
from tests.backends.cpu.native import LEVELS, grid, parse_kernel, run

DTYPES = {
    "f16": np.float16, "bf16": ml_dtypes.bfloat16, "f32": np.float32, "f64": np.float64, "i1": np.bool_,
    "i8": np.int8, "i16": np.int16, "i32": np.int32, "i64": np.int64,
}  # fmt: skip
FLOATS, INTEGERS = ("f16", "bf16", "f32", "f64"), ("i8", "i16", "i32", "i64")
# With 16 lanes, two full registers and five lanes of a third per row; and a single element.
SHAPES = [(2, 37), (1,)]

FLOAT_BINARY = ["addf", "subf", "mulf", "divf", "maximumf", "minimumf", "maxnumf", "minnumf"]
FLOAT_UNARY = [
    "arith.negf", "math.absf", "math.sqrt", "math.floor", "math.ceil", "math.trunc", "math.roundeven",
]  # fmt: skip
INTEGER_BINARY = [
    "addi", "subi", "muli", "andi", "ori", "xori", "shli", "shrsi", "shrui", "maxsi", "maxui", "minsi", "minui",
]  # fmt: skip


def values(dtype: str, shape: tuple[int, ...], seed: int) -> np.ndarray:
    """Return random values that include the special values of the type."""
    rng, numpy_dtype = np.random.default_rng(seed), DTYPES[dtype]
    count = int(np.prod(shape))
    if dtype == "i1":
        return rng.integers(0, 2, shape).astype(np.bool_)
    if dtype in FLOATS:
        special = [np.nan, np.inf, -np.inf, 0.0, -0.0, 1e-41, 6e-8, 0.5, -1.5, 2.5, 65519.0, 65520.0, 3e38, -1e30, 1e300]
        x = rng.standard_normal(count) * 10.0 ** rng.integers(-3, 5, count)
    else:
        info = np.iinfo(numpy_dtype)
        special = [0, 0, 1, -1, info.min, info.max, 7, -3]
        x = rng.integers(info.min, info.max, count, np.int64, endpoint=True)
        x = np.where(rng.random(count) < 0.5, x % 40, x)
    chosen = rng.random(count) < 0.4
    x = np.where(chosen, rng.choice(np.array(special), count), x)
    with np.errstate(all="ignore"):
        return x.astype(numpy_dtype).reshape(shape)


class Kernel:
    """A kernel that reads vectors, applies ops, and writes each result to an output of its own."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        self.shape = shape
        self.arguments: list[str] = []
        self.arrays: list[np.ndarray] = []
        self.body: list[str] = []
        self.labels: list[str] = []
        self.map = ", ".join(["true"] * len(shape))
        self.indices = ", ".join(["%zero"] * len(shape))

    def type(self, dtype: str, container: str = "vector") -> str:
        return f"{container}<{'x'.join(map(str, self.shape))}x{dtype}>"

    def argument(self, name: str, dtype: str, array: np.ndarray) -> None:
        self.arguments.append(f"%{name}: {self.type(dtype, 'memref')}")
        self.arrays.append(array)

    def read(self, name: str, dtype: str, seed: int) -> None:
        self.argument(f"{name}_in", dtype, values(dtype, self.shape, seed))
        zero = "0.0" if dtype in FLOATS else "0"
        self.body += [
            f"%{name}_pad = arith.constant {zero} : {dtype}",
            f"%{name} = vector.transfer_read %{name}_in[{self.indices}], %{name}_pad {{in_bounds = [{self.map}]}} "
            f": {self.type(dtype, 'memref')}, {self.type(dtype)}",
        ]

    def apply(self, op: str, dtype: str, operands: str = "%a, %b", signature: str = "") -> None:
        """Append `op operands : signature`; the default signature is the result's type."""
        result = f"r{len(self.labels)}"
        self.body += [
            f"%{result} = {op} {operands} : {signature or self.type(dtype)}",
            f"vector.transfer_write %{result}, %{result}_out[{self.indices}] {{in_bounds = [{self.map}]}} "
            f": {self.type(dtype)}, {self.type(dtype, 'memref')}",
        ]
        self.argument(f"{result}_out", dtype, np.zeros(self.shape, DTYPES[dtype]))
        self.labels.append(f"{op} : {signature or dtype}")

    def check(self, target: Target) -> None:
        kernel = parse_kernel(grid("\n        ".join(self.body), ", ".join(self.arguments)))
        expected = [a.copy() for a in self.arrays]
        evaluate_function(kernel, expected)
        inputs = len(self.arrays) - len(self.labels)
        results = run(kernel, self.arrays, target)
        for label, a, e in zip(self.labels, results[inputs:], expected[inputs:], strict=True):
            # np.isnan supports NumPy's own dtypes only.
            exact = np.float64 if e.dtype == ml_dtypes.bfloat16 else e.dtype
            np.testing.assert_array_equal(a.astype(exact), e.astype(exact), err_msg=label)


@pytest.mark.parametrize("target", LEVELS)
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("dtype", FLOATS)
def test_floats(dtype: str, shape: tuple[int, ...], target: Target) -> None:
    k = Kernel(shape)
    k.read("a", dtype, 1)
    k.read("b", dtype, 2)
    for op in FLOAT_BINARY:
        k.apply(f"arith.{op}", dtype)
    k.apply("math.copysign", dtype)
    for op in FLOAT_UNARY:
        k.apply(op, dtype, "%a")
    for predicate in ("oeq", "ogt", "oge", "olt", "ole", "one", "ord", "ueq", "ugt", "uge", "ult", "ule", "une", "uno"):
        k.apply(f"arith.cmpf {predicate},", "i1", signature=k.type(dtype))
    for other in FLOATS:
        size, other_size = np.dtype(DTYPES[dtype]).itemsize, np.dtype(DTYPES[other]).itemsize
        if size != other_size:
            k.apply("arith.extf" if other_size > size else "arith.truncf", other, "%a", f"{k.type(dtype)} to {k.type(other)}")
    for integer in INTEGERS:
        k.apply("arith.fptosi", integer, "%a", f"{k.type(dtype)} to {k.type(integer)}")
        k.apply("arith.fptoui", integer, "%a", f"{k.type(dtype)} to {k.type(integer)}")
    k.check(target)


@pytest.mark.parametrize("target", LEVELS)
@pytest.mark.parametrize("dtype", FLOATS)
def test_fused_multiply_add(dtype: str, target: Target) -> None:
    # Without the instruction it rounds twice, so the inputs make the intermediate result exact.
    k = Kernel((2, 37))
    for i, name in enumerate("abc"):
        k.read(name, dtype, i)
        k.arrays[i] = np.random.default_rng(i).integers(-8, 8, (2, 37)).astype(DTYPES[dtype])
    k.apply("vector.fma", dtype, "%a, %b, %c")
    k.apply("math.fma", dtype, "%a, %b, %c")
    k.check(target)


@pytest.mark.parametrize("target", LEVELS)
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("dtype", INTEGERS)
def test_integers(dtype: str, shape: tuple[int, ...], target: Target) -> None:
    k = Kernel(shape)
    k.read("a", dtype, 3)
    k.read("b", dtype, 4)
    for op in INTEGER_BINARY:
        k.apply(f"arith.{op}", dtype)
    for predicate in ("eq", "ne", "slt", "sle", "sgt", "sge", "ult", "ule", "ugt", "uge"):
        k.apply(f"arith.cmpi {predicate},", "i1", signature=k.type(dtype))
    for other in ("i1", *INTEGERS):
        bits, other_bits = int(dtype[1:]), int(other[1:])
        conversion = f"{k.type(dtype)} to {k.type(other)}"
        if other_bits > bits:
            k.apply("arith.extsi", other, "%a", conversion)
            k.apply("arith.extui", other, "%a", conversion)
        elif other_bits < bits:
            k.apply("arith.trunci", other, "%a", conversion)
    for other in FLOATS:
        k.apply("arith.sitofp", other, "%a", f"{k.type(dtype)} to {k.type(other)}")
        k.apply("arith.uitofp", other, "%a", f"{k.type(dtype)} to {k.type(other)}")
    k.check(target)


@pytest.mark.parametrize("target", LEVELS)
@pytest.mark.parametrize("dtype", INTEGERS)
def test_division(dtype: str, target: Target) -> None:
    # Divisors are never zero: scalar bodies replace unsafe ones (dl/scalar.py).
    k = Kernel((2, 32))
    k.read("a", dtype, 3)
    k.read("b", dtype, 4)
    k.arrays[1] = np.where(np.isin(k.arrays[1], (0, -1)), 3, k.arrays[1]).astype(DTYPES[dtype])
    for op in ("divsi", "divui", "remui"):
        k.apply(f"arith.{op}", dtype)
    k.check(target)


@pytest.mark.parametrize("target", LEVELS)
@pytest.mark.parametrize("shape", SHAPES)
def test_bools_and_selection(shape: tuple[int, ...], target: Target) -> None:
    k = Kernel(shape)
    k.read("a", "i1", 5)
    k.read("b", "i1", 6)
    k.read("x", "f32", 7)
    k.read("y", "f32", 8)
    for op in ("andi", "ori", "xori"):
        k.apply(f"arith.{op}", "i1")
    k.apply("arith.select", "f32", "%a, %x, %y", f"{k.type('i1')}, {k.type('f32')}")
    k.apply("arith.select", "i1", "%a, %b, %a", f"{k.type('i1')}, {k.type('i1')}")
    k.apply("arith.uitofp", "f32", "%a", f"{k.type('i1')} to {k.type('f32')}")
    k.apply("arith.extui", "i64", "%a", f"{k.type('i1')} to {k.type('i64')}")
    k.apply("arith.bitcast", "i32", "%x", f"{k.type('f32')} to {k.type('i32')}")
    k.check(target)


@pytest.mark.parametrize("target", LEVELS)
@pytest.mark.parametrize("dtype", ["f32", "f16"])
def test_extrema_with_a_constant(dtype: str, target: Target) -> None:
    k = Kernel((2, 37))
    k.read("a", dtype, 9)
    k.body.append(f"%c = arith.constant dense<0.5> : {k.type(dtype)}")
    for op in ("maximumf", "minimumf"):
        k.apply(f"arith.{op}", dtype, "%a, %c")
        k.apply(f"arith.{op}", dtype, "%c, %a")
    k.check(target)


@pytest.mark.parametrize("type", ["i32", "vector<16xi32>"])
def test_shifts_by_a_constant_are_one_instruction(type: str) -> None:
    one = type == "i32"
    access = (
        "memref.load %x[%zero] : memref<16xi32>"
        if one
        else ("vector.transfer_read %x[%zero], %pad {in_bounds = [true]} : memref<16xi32>, vector<16xi32>")
    )
    store = "memref.store %r, %y[%zero]" if one else "vector.transfer_write %r, %y[%zero] {in_bounds = [true]}"
    body = f"""
        %pad = arith.constant 0 : i32
        %by = arith.constant {"5 : i32" if one else "dense<5> : vector<16xi32>"}
        %v = {access}
        %r = arith.shli %v, %by : {type}
        {store} : {"" if one else f"{type}, "}memref<16xi32>"""
    text = grid(body, "%x: memref<16xi32>, %y: memref<16xi32>")
    emitted = emit_kernel(parse_kernel(text), CPU_LEVELS["cpu:avx512"]).text
    assert emitted.count(" = shl ") == 1 and "icmp" not in emitted
