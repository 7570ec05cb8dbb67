"""Random programs of loops with small states, run by `dlc.lax` and by Python loops over NumPy.

A state has two f64 scalars `a` and `b`, an integer `k` of a random type, vectors `x` and `y` that are updated in place and may
be the same array, a 2 × 2 matrix `m` and a bool `p`. Values are bounded: statements combine functions with values in [-1, 1]
and averages. Most functions are quotients: sines would be the largest part of the kernels, whose compilation takes most of the
time of a trial. A few programs read an index out of range, which is an IndexError in NumPy.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, NamedTuple

import numpy as np

import dlc
import dlc.numpy as dnp

INTEGERS = ("int8", "uint8", "int16", "int32", "int64", "uint32")
# Loops of one statement run fewer steps than this.
_STEP_LIMIT = 12


class State(NamedTuple):
    """The variables of a program."""

    a: Any
    b: Any
    k: Any
    x: Any
    m: Any
    p: Any
    y: Any


@dataclass(frozen=True)
class Statement:
    """A statement: its kind, parameters, and the bodies of a loop or branch."""

    kind: str
    numbers: tuple[int, ...] = ()
    bodies: tuple[tuple[Statement, ...], ...] = ()


class RandomLoops:
    """A random program, and inputs for it."""

    def __init__(self, seed: int, max_depth: int = 3, has_dynamic_sizes: bool = False) -> None:
        self._random, self._max_depth, self._has_dynamic_sizes = random.Random(seed), max_depth, has_dynamic_sizes
        self.integer = np.dtype(self._random.choice(INTEGERS))
        self.size = self._random.choice((3, 9, 70))
        self.body = self._statements(0)
        if not any(s.kind in ("for", "while", "scan") for s in self.body):
            self.body = (Statement("for", (self._random.randint(9, 14),), (self.body,)),)

    def inputs(self, seed: int) -> State:
        """Return random inputs."""
        rng = np.random.default_rng(seed)
        return State(
            rng.uniform(-1, 1), rng.uniform(-1, 1), self.integer.type(rng.integers(0, 100)),
            rng.uniform(-1, 1, self.size), rng.uniform(-1, 1, (2, 2)), bool(rng.integers(2)), rng.uniform(-1, 1, self.size),
        )  # fmt: skip

    def _statements(self, depth: int) -> tuple[Statement, ...]:
        return tuple(self._statement(depth) for _ in range(self._random.randint(1, 4)))

    def _statement(self, depth: int) -> Statement:
        r = self._random
        kinds = ["scalar", "scalar", "integer", "write", "add", "read", "matrix", "flag", "select", "maximum"]
        kinds += ["duplicate", "exchange", "copy_element", "temporary", "search", "sequences", "near_limit"]
        kinds += ["permute", "alias", "gather", "random", "custom", "not_a_number", "lanes"]
        kinds += ["sort", "scatter", "mixed_types", "nested_while", "curvature", "stack", "out_of_range", "take"]
        if self._has_dynamic_sizes:
            kinds.append("unique")
        if depth < self._max_depth:
            kinds += ["for", "while", "scan", "if", "for", "while", "captured", "checkpoint", "function", "range"]
        kind = r.choice(kinds)
        numbers = tuple(r.randint(0, 100) for _ in range(3))
        if kind in ("for", "scan", "while", "captured"):
            # Short loops may be unrolled, and zero steps are allowed.
            steps = r.choice((0, 1, 3, 9, 12)) if depth == 0 else r.choice((0, 2, 9))
            return Statement(kind, (steps, *numbers), (self._statements(depth + 1),))
        if kind in ("checkpoint", "function", "range"):
            return Statement(kind, numbers, (self._statements(depth + 1),))
        if kind == "if":
            return Statement(kind, numbers, (self._statements(depth + 1), self._statements(depth + 1)))
        return Statement(kind, numbers)


class Interpreter:
    """Runs a program. `control` runs loops and branches, `np` is the array library, `update(x, i, value, mode)` writes to x."""

    def __init__(self, np_: Any, control: Any, update: Callable[[Any, Any, Any, str], Any]) -> None:
        self._np, self._control, self._update = np_, control, update

    def run(self, statements: Sequence[Statement], state: State) -> State:
        """Return the state after the statements."""
        for statement in statements:
            state = getattr(self, f"_{statement.kind}")(statement, state)
        return state

    def _bounded(self, x: Any) -> Any:
        return self._np.divide(2 * x, 1 + x * x)

    def _index(self, s: State, number: int) -> Any:
        """Return an index of `x` that depends on `k`; negative ones count from the end."""
        n = s.x.shape[0]
        return s.k.astype(np.int64) % n - (n if number % 2 else 0)

    def _scalar(self, statement: Statement, s: State) -> State:
        choice = statement.numbers[0] % 4
        values = (lambda: self._np.sin(3 * s.a + s.b), lambda: self._np.tanh(s.a * 2 - s.b * s.b), lambda: s.b - 0.5 * s.a * s.b,
                  lambda: (s.a + s.m[0, 1] * s.b) / 2)  # fmt: skip
        value = values[choice]()
        return s._replace(a=value) if statement.numbers[1] % 2 else s._replace(b=value)

    def _integer(self, statement: Statement, s: State) -> State:
        first, second = (s.k.dtype.type(n + 1) for n in statement.numbers[:2])
        choice = statement.numbers[2] % 3
        return s._replace(k=s.k * first + second if choice == 0 else s.k // second if choice == 1 else s.k % second + first)

    def _write(self, statement: Statement, s: State) -> State:
        return s._replace(x=self._update(s.x, self._index(s, statement.numbers[0]), s.a * 0.5 + s.b * 0.25, "set"))

    def _add(self, statement: Statement, s: State) -> State:
        return s._replace(x=self._update(s.x, self._index(s, statement.numbers[0]), s.b * 0.125, "add"))

    def _read(self, statement: Statement, s: State) -> State:
        return s._replace(a=self._bounded(s.x[self._index(s, statement.numbers[0])] + s.b))

    def _duplicate(self, statement: Statement, s: State) -> State:
        return s._replace(y=s.x)

    def _exchange(self, statement: Statement, s: State) -> State:
        return s._replace(x=s.y, y=s.x)

    def _copy_element(self, statement: Statement, s: State) -> State:
        value = s.y[self._index(s, statement.numbers[1])] * 0.5 + s.a * 0.25
        return s._replace(x=self._update(s.x, self._index(s, statement.numbers[0]), value, "set"))

    def _temporary(self, statement: Statement, s: State) -> State:
        """Update a copy of `x` and read both."""
        index = self._index(s, statement.numbers[0])
        changed = self._update(s.x, index, s.b, "set")
        return s._replace(a=self._bounded(changed[index] + s.x[index]))

    def _captured(self, statement: Statement, s: State) -> State:
        """Update `x` in a loop that also reads its initial value."""
        initial = s.x

        def body(s: State) -> State:
            s = self.run(statement.bodies[0], s)
            index = self._index(s, statement.numbers[1])
            return s._replace(x=self._update(s.x, index, initial[index] * 0.5 + s.a * 0.25, "set"))

        return self._control.for_loop(statement.numbers[0], body, s)

    def _matrix(self, statement: Statement, s: State) -> State:
        other = self._np.stack([self._np.stack([s.a, -s.b]), self._np.stack([s.b, s.a])])
        return s._replace(m=self._np.tanh(s.m @ other + s.m.T * 0.5))

    def _flag(self, statement: Statement, s: State) -> State:
        limit = s.k.dtype.type(statement.numbers[0])
        return s._replace(p=(s.k < limit) ^ s.p if statement.numbers[1] % 2 else s.k >= limit)

    def _select(self, statement: Statement, s: State) -> State:
        return s._replace(a=self._np.where(s.p, s.a, s.b * 0.5), m=self._np.where(s.p, s.m, s.m * 0.5))

    def _maximum(self, statement: Statement, s: State) -> State:
        return s._replace(b=self._bounded(s.m.sum() + s.m.max(axis=0)[0] + s.x[0]))

    def _search(self, statement: Statement, s: State) -> State:
        """Find the first element of `x` above a limit, and continue with it."""
        limit, size = statement.numbers[0] / 100, s.x.shape[0]
        position = self._control.search(lambda k: (k < size - 1) & (s.x[k] < limit))
        return s._replace(b=self._bounded(s.x[position] + s.b), k=(s.k + position.astype(s.k.dtype)).astype(s.k.dtype))

    def _sequences(self, statement: Statement, s: State) -> State:
        """Sum elements of sequences of several types, in either direction."""
        flags = self._np.arange(s.x.shape[0]) % 3 == statement.numbers[0] % 3
        numbers = self._np.arange(s.x.shape[0], dtype=np.int16)
        total = self._control.sum_sequences((s.x, flags, numbers, s.y), bool(statement.numbers[1] % 2), s.a)
        return s._replace(a=self._bounded(total))

    def _near_limit(self, statement: Statement, s: State) -> State:
        """Set `k` near the largest integer of its type, so that later sums wrap."""
        largest = np.iinfo(s.k.dtype).max - statement.numbers[0] % 3
        return s._replace(k=self._np.where(s.p, s.k, s.k.dtype.type(largest)).astype(s.k.dtype))

    def _checkpoint(self, statement: Statement, s: State) -> State:
        return self._control.checkpoint(lambda s: self.run(statement.bodies[0], s), s)

    def _permute(self, statement: Statement, s: State) -> State:
        """Rotate scalars and arrays of the state in a loop."""
        return self._control.for_loop(
            statement.numbers[0] % 5, lambda s: s._replace(a=s.b, b=s.m[1, 0], m=s.m.T * 0.5 + s.a * 0.25, x=s.y, y=s.x), s
        )

    def _alias(self, statement: Statement, s: State) -> State:
        """Update an array in a loop that begins with the same constant in two places, and carries a captured array."""
        constant = self._np.full(s.x.shape[0], 0.5, s.x.dtype)

        def body(t: State) -> State:
            index = self._index(t, statement.numbers[0])
            changed = self._update(t.x, index, t.y[index] * 0.5 + t.a * 0.25, "set")
            return t._replace(x=changed, a=self._bounded(t.a + s.x[index]))

        t = self._control.for_loop(statement.numbers[1] % 4, body, s._replace(x=constant, y=constant))
        return s._replace(a=t.a, b=self._bounded(t.x.sum() + t.y[0] + s.b))

    def _gather(self, statement: Statement, s: State) -> State:
        """Sum elements of `y` at computed positions, in a loop."""
        n = s.y.shape[0]

        def body(t: State) -> State:
            position = (t.k.astype(np.int64) * (statement.numbers[0] + 1)) % n
            return t._replace(a=self._bounded(t.a + s.y[position]), k=t.k + t.k.dtype.type(1))

        return self._control.for_loop(statement.numbers[1] % _STEP_LIMIT, body, s)._replace(k=s.k)

    def _random(self, statement: Statement, s: State) -> State:
        """Add random numbers, whose key is folded with the number of the step."""
        return s._replace(
            a=self._bounded(self._control.sum_random(statement.numbers[0], statement.numbers[1] % _STEP_LIMIT, s.a))
        )

    def _custom(self, statement: Statement, s: State) -> State:
        """Apply a function with its own derivative in a loop."""
        body = lambda t: t._replace(a=self._control.half_sine(t.a + t.b))  # noqa: E731
        return self._control.for_loop(statement.numbers[0] % _STEP_LIMIT, body, s)

    def _not_a_number(self, statement: Statement, s: State) -> State:
        """Run a loop whose condition compares with NaN or infinity; it runs never, or until a number of steps."""
        bound = (np.nan, np.inf, -np.inf)[statement.numbers[0] % 3]
        return self._control.run_below(s.a * s.a + bound, statement.numbers[1] % 9, lambda a: self._bounded(a + s.b), s)

    def _lanes(self, statement: Statement, s: State) -> State:
        """Map a gradient of a loop over the rows of the matrix, whose elements are mapped over as well."""
        return s._replace(m=self._control.nested_gradients(s.m, statement.numbers[0] % 4))

    def _sort(self, statement: Statement, s: State) -> State:
        """Sort `x` and read its largest element by position, in a loop of two steps."""

        def body(t: State) -> State:
            x = self._np.sort(t.x * 0.5 + t.a * 0.25)
            index = self._np.argmax(self._np.abs(x)).astype(np.int64)
            return t._replace(x=x[::-1] if statement.numbers[0] % 2 else x, b=self._bounded(t.b + x[index]))

        return self._control.for_loop(2, body, s)

    def _scatter(self, statement: Statement, s: State) -> State:
        """Add values at positions that may be equal, in a loop."""
        n, stride = s.x.shape[0], statement.numbers[0] % 3

        def body(t: State) -> State:
            positions = (t.k.astype(np.int64) + self._np.arange(4) * stride) % n
            x = self._control.add_at(t.x, positions, self._np.stack([t.a, t.b, -t.a, t.m[0, 0]]) * 0.125)
            return t._replace(x=self._bounded(x))

        return self._control.for_loop(statement.numbers[1] % 4, body, s)

    def _mixed_types(self, statement: Statement, s: State) -> State:
        """Carry values of many types through a loop whose results are exact."""
        start = (
            s.p, s.k.astype(np.int8), s.k.astype(np.uint64), s.k.astype(np.int8).astype(np.float16),
            s.k.astype(np.int8).astype(np.complex64),
        )  # fmt: skip

        def body(carry: Any) -> Any:
            p, small, large, half, z = carry
            large = large * np.uint64(6364136223846793005) + np.uint64(1442695040888963407)
            small = small * np.int8(3) + np.int8(statement.numbers[0])
            half = self._np.where(p, half * np.float16(0.5), np.float16(1)).astype(np.float16)
            z = (z * np.complex64(1j)).astype(np.complex64)
            return (small > 0) ^ p, small.astype(np.int8), large, half, z

        p, small, large, half, z = self._control.repeat(statement.numbers[1] % _STEP_LIMIT, body, start)
        total = small.astype(np.float64) + (large >> np.uint64(40)).astype(np.float64) + half.astype(np.float64)
        total = total + z.real.astype(np.float64) - z.imag.astype(np.float64)
        return s._replace(p=p, a=self._bounded(s.a + total * 1e-7))

    def _nested_while(self, statement: Statement, s: State) -> State:
        """Run a while loop in a while loop, which a branch may end early."""
        last, limit = (s.k % s.k.dtype.type(5)).astype(np.int32), np.int32(statement.numbers[0] % 7)

        def inner(carry: Any) -> Any:
            j, total = carry
            return j + np.int32(1), self._bounded(total + s.b)

        def outer(carry: Any) -> Any:
            i, count, total = carry
            j, total = self._control.repeat_while(lambda c: c[0] < i, inner, (np.int32(0), total))
            count = count + j
            return self._control.branch(count > limit, lambda: last, lambda: i + np.int32(1)), count, total

        start = np.int32(0), np.int32(0), s.a
        i, count, total = self._control.repeat_while(lambda c: c[0] < last, outer, start)
        return s._replace(a=total, k=(s.k + (i + count).astype(s.k.dtype)).astype(s.k.dtype))

    def _curvature(self, statement: Statement, s: State) -> State:
        """Second derivatives of a loop, mapped over the diagonal of the matrix."""
        row = self._np.stack([s.m[0, 0], s.m[1, 1]])
        return s._replace(b=self._bounded(self._control.second_derivatives(row, statement.numbers[0] % 4).sum() + s.b))

    def _stack(self, statement: Statement, s: State) -> State:
        """Stack values of several types in a scan without sequences."""
        reverse, steps = bool(statement.numbers[0] % 2), statement.numbers[1] % _STEP_LIMIT
        values, signs = self._control.stack(steps, lambda a: self._bounded(a + s.b), s.a, reverse)
        return s._replace(a=self._bounded(self._np.where(signs, values, 0.25).sum() + (values[0] if steps else 0)))

    def _function(self, statement: Statement, s: State) -> State:
        return self._control.function(lambda s: self.run(statement.bodies[0], s), s)

    def _for(self, statement: Statement, s: State) -> State:
        return self._control.for_loop(statement.numbers[0], lambda s: self.run(statement.bodies[0], s), s)

    def _while(self, statement: Statement, s: State) -> State:
        """Run a number of steps that depends on `k`."""
        last = (s.k % s.k.dtype.type(statement.numbers[0] + 1)).astype(np.int32)
        return self._control.while_loop(last, lambda s: self.run(statement.bodies[0], s), s)

    def _range(self, statement: Statement, s: State) -> State:
        """Run the steps of a range, which may be empty; the bounds are values of integers, and a step uses its number."""
        lower = (s.k % s.k.dtype.type(3)).astype(np.int64)
        upper = lower + (s.k // s.k.dtype.type(4) % s.k.dtype.type(5)).astype(np.int64) - 2

        def body(i: Any, s: State) -> State:
            s = self.run(statement.bodies[0], s)
            return s._replace(b=self._bounded(s.b + i * 0.125))

        return self._control.for_range(lower, upper, body, s)

    def _out_of_range(self, statement: Statement, s: State) -> State:
        """Read an element of `x`, seldom one past the end."""
        n = s.x.shape[0]
        position = (s.k.astype(np.int64) * 7 + statement.numbers[0]) % (16 * n + 1)
        return s._replace(b=self._bounded(s.b + s.x[self._np.where(position == 16 * n, n, position % n)]))

    def _take(self, statement: Statement, s: State) -> State:
        """Add an element of `x` in a loop, at an index that is clipped, or counted modulo the size."""
        mode = ("clip", "wrap")[statement.numbers[0] % 2]

        def body(t: State) -> State:
            index = t.k.astype(np.int64) - statement.numbers[1]
            return t._replace(a=self._bounded(t.a + self._np.take(t.x, index, mode=mode)), k=t.k + t.k.dtype.type(1))

        return self._control.for_loop(statement.numbers[2] % 4, body, s)._replace(k=s.k)

    def _unique(self, statement: Statement, s: State) -> State:
        """Sum the unique values of `x` after rounding, whose number each step computes."""

        def body(t: State) -> State:
            values = self._np.unique(self._np.floor(t.x * 4))
            return t._replace(x=t.x * 0.75, a=self._bounded(t.a + values.sum() * 0.0625))

        return self._control.for_loop(statement.numbers[0] % 4, body, s)

    def _scan(self, statement: Statement, s: State) -> State:
        s, collected = self._control.scan(
            statement.numbers[0], lambda s: self.run(statement.bodies[0], s), s, reverse=bool(statement.numbers[1] % 2)
        )
        return s._replace(b=self._bounded(s.b + collected.sum())) if statement.numbers[0] else s

    def _if(self, statement: Statement, s: State) -> State:
        then, otherwise = statement.bodies
        return self._control.cond(s.p, lambda s: self.run(then, s), lambda s: self.run(otherwise, s), s)


class PlainControl:
    """Loops and branches of Python."""

    def for_loop(self, steps: int, body: Callable[[State], State], s: State) -> State:
        for _ in range(steps):
            s = body(s)
        return s

    def while_loop(self, last: Any, body: Callable[[State], State], s: State) -> State:
        return self.for_loop(int(last), body, s)

    def for_range(self, lower: Any, upper: Any, body: Callable[[Any, State], State], s: State) -> State:
        for i in range(lower, upper):
            s = body(i, s)
        return s

    def scan(self, steps: int, body: Callable[[State], State], s: State, reverse: bool) -> tuple[State, Any]:
        collected: list[Any] = []
        for i in range(steps)[:: -1 if reverse else 1]:
            s = body(s)
            collected.append(s.a * (1 + i))
        return s, np.array(collected)

    def cond(self, p: Any, then: Callable[[State], State], otherwise: Callable[[State], State], s: State) -> State:
        return then(s) if p else otherwise(s)

    def search(self, continues: Callable[[Any], Any]) -> Any:
        k = np.int64(0)
        while continues(k):
            k += 1
        return k

    def sum_sequences(self, sequences: tuple[Any, ...], reverse: bool, total: Any) -> Any:
        for x, flag, n, y in list(zip(*sequences, strict=True))[:: -1 if reverse else 1]:
            total = np.sin(total + (x if flag else y * n * 0.125))
        return total

    def checkpoint(self, body: Callable[[State], State], s: State) -> State:
        return body(s)

    def function(self, body: Callable[[State], State], s: State) -> State:
        return body(s)

    def sum_random(self, seed: int, steps: int, total: Any) -> Any:
        for number in _random_numbers(seed)[:steps]:
            total = total * 0.5 + number
        return total

    def half_sine(self, x: Any) -> Any:
        return np.sin(x) * 0.5

    def run_below(self, bound: Any, steps: int, body: Callable[[Any], Any], s: State) -> State:
        a, k = s.a, 0
        while a < bound and k < steps:
            a, k = body(a), k + 1
        return s._replace(a=a)

    def nested_gradients(self, m: Any, steps: int) -> Any:
        """The gradient of the sum of an iterated sine of a row's elements, by the chain rule."""
        x, slope = m, np.ones_like(m)
        for _ in range(steps):
            slope, x = slope * np.cos(x), np.sin(x)
        return slope

    def add_at(self, x: Any, positions: Any, values: Any) -> Any:
        result = x.copy()
        np.add.at(result, positions, values)
        return result

    def repeat(self, steps: int, body: Callable[[Any], Any], carry: Any) -> Any:
        for _ in range(steps):
            carry = body(carry)
        return carry

    def repeat_while(self, continues: Callable[[Any], Any], body: Callable[[Any], Any], carry: Any) -> Any:
        while continues(carry):
            carry = body(carry)
        return carry

    def branch(self, p: Any, then: Callable[[], Any], otherwise: Callable[[], Any]) -> Any:
        return then() if p else otherwise()

    def second_derivatives(self, x: Any, steps: int) -> Any:
        """The second derivative of an iterated x - x³ / 6, by the chain rule."""
        slope, curvature = np.ones_like(x), np.zeros_like(x)
        for _ in range(steps):
            slope, curvature = (1 - x * x / 2) * slope, (1 - x * x / 2) * curvature - x * slope * slope
            x = x - x * x * x / 6
        return curvature

    def stack(self, steps: int, body: Callable[[Any], Any], a: Any, reverse: bool) -> Any:
        values = list[Any]()
        for _ in range(steps):
            a = body(a)
            values.append(a)
        stacked = np.array(values[::-1] if reverse else values, np.float64)
        return stacked, stacked > 0


def _random_number(seed: Any, i: Any) -> Any:
    return dlc.random.uniform(dlc.random.fold_in(dlc.random.key(seed), i), (), np.float64)


@cache
def _random_numbers(seed: int) -> Any:
    """Return the random numbers of all steps; programs with the same key share them."""
    return np.asarray(dlc.vmap(lambda i: _random_number(seed, i))(np.arange(_STEP_LIMIT)))


@dlc.custom_vjp
def _half_sine(x: Any) -> Any:
    return dnp.sin(x) * 0.5


@dlc.custom_jvp
def _forward_half_sine(x: Any) -> Any:
    return dnp.sin(x) * 0.5


_forward_half_sine.defjvp(lambda primals, tangents: (_forward_half_sine(*primals), dnp.cos(*primals) * 0.5 * tangents[0]))
_half_sine.defvjp(lambda x: (_half_sine(x), dnp.cos(x)), lambda slope, cotangent: (slope * cotangent * 0.5,))


class LaxControl:
    """Loops and branches of `dlc.lax`. Forward mode needs functions with `custom_jvp` in place of `custom_vjp`."""

    def __init__(self, lax: Any, is_forward: bool) -> None:
        self._lax, self._half_sine = lax, _forward_half_sine if is_forward else _half_sine

    def for_loop(self, steps: int, body: Callable[[State], State], s: State) -> State:
        return self._lax.fori_loop(0, steps, lambda _, s: body(s), s)

    def for_range(self, lower: Any, upper: Any, body: Callable[[Any, State], State], s: State) -> State:
        return self._lax.fori_loop(lower, upper, body, s)

    def while_loop(self, last: Any, body: Callable[[State], State], s: State) -> State:
        start = np.int32(0), s
        return self._lax.while_loop(lambda c: c[0] < last, lambda c: (c[0] + np.int32(1), body(c[1])), start)[1]

    def scan(self, steps: int, body: Callable[[State], State], s: State, reverse: bool) -> tuple[State, Any]:
        def step(s: State, i: Any) -> tuple[State, Any]:
            s = body(s)
            return s, s.a * i

        return self._lax.scan(step, s, np.arange(1.0, steps + 1), reverse=reverse)

    def cond(self, p: Any, then: Callable[[State], State], otherwise: Callable[[State], State], s: State) -> State:
        return self._lax.cond(p, then, otherwise, s)

    def search(self, continues: Callable[[Any], Any]) -> Any:
        return self._lax.while_loop(continues, lambda k: k + 1, np.int64(0))

    def sum_sequences(self, sequences: tuple[Any, ...], reverse: bool, total: Any) -> Any:
        def step(total: Any, elements: Any) -> tuple[Any, None]:
            x, flag, n, y = elements
            return dnp.sin(total + dnp.where(flag, x, y * n * 0.125)), None

        return self._lax.scan(step, total, sequences, reverse=reverse)[0]

    def checkpoint(self, body: Callable[[State], State], s: State) -> State:
        return dlc.checkpoint(body)(s)

    def function(self, body: Callable[[State], State], s: State) -> State:
        return dlc.jit(body)(s)

    def sum_random(self, seed: int, steps: int, total: Any) -> Any:
        return self._lax.fori_loop(0, steps, lambda i, total: total * 0.5 + _random_number(seed, i), total)

    def half_sine(self, x: Any) -> Any:
        return self._half_sine(x)

    def run_below(self, bound: Any, steps: int, body: Callable[[Any], Any], s: State) -> State:
        start = s.a, np.int32(0)
        a, _ = self._lax.while_loop(
            lambda c: (c[0] < bound) & (c[1] < steps), lambda c: (body(c[0]), c[1] + np.int32(1)), start
        )
        return s._replace(a=a)

    def nested_gradients(self, m: Any, steps: int) -> Any:
        def total(row: Any) -> Any:
            return dlc.vmap(lambda x: self._lax.fori_loop(0, steps, lambda _, x: dnp.sin(x), x))(row).sum()

        return dlc.vmap(dlc.grad(total))(m)

    def add_at(self, x: Any, positions: Any, values: Any) -> Any:
        return x.at[positions].add(values)

    def repeat(self, steps: int, body: Callable[[Any], Any], carry: Any) -> Any:
        return self._lax.fori_loop(0, steps, lambda _, carry: body(carry), carry)

    def repeat_while(self, continues: Callable[[Any], Any], body: Callable[[Any], Any], carry: Any) -> Any:
        return self._lax.while_loop(continues, body, carry)

    def branch(self, p: Any, then: Callable[[], Any], otherwise: Callable[[], Any]) -> Any:
        return self._lax.cond(p, then, otherwise)

    def second_derivatives(self, x: Any, steps: int) -> Any:
        def iterate(x: Any) -> Any:
            return self._lax.fori_loop(0, steps, lambda _, x: x - x * x * x / 6, x)

        return dlc.vmap(dlc.grad(dlc.grad(iterate)))(x)

    def stack(self, steps: int, body: Callable[[Any], Any], a: Any, reverse: bool) -> Any:
        def step(a: Any, _: None) -> Any:
            a = body(a)
            return a, (a, a > 0)

        return self._lax.scan(step, a, None, length=steps, reverse=reverse)[1]


def plain_update(x: Any, i: Any, value: Any, mode: str) -> Any:
    """Return a copy of a NumPy array with one element set, or added to."""
    result = x.copy()
    result[i] = value if mode == "set" else result[i] + value
    return result


def traced_update(x: Any, i: Any, value: Any, mode: str) -> Any:
    """Return a traced array with one element set, or added to."""
    return getattr(x.at[i], mode)(value)
