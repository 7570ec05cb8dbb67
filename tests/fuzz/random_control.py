"""Random programs of nested loops and branches, interpreted with `dlc.lax` and with Python's own loops and branches.

All values are small integers, so that floats are exact and every way of computing a result agrees. Smooth programs are for
differentiation: their floats are f64 with any value, and their ops include differentiable functions.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np

import dlc.numpy as dnp

MAX_DEPTH = 3
# A program uses three of these sizes: 0, 1, small ones, and ones near the vector width.
SIZES = (0, 1, 2, 3, 3, 5, 7, 8, 9)
MAX_MAGNITUDE = 99
DTYPES = tuple(np.dtype(t) for t in (np.float32, np.float32, np.int64, np.int32))
SMOOTH_DTYPES = tuple(np.dtype(t) for t in (np.float64, np.float64, np.float64, np.int64))
BOOL = np.dtype(bool)


class Type(NamedTuple):
    """The dtype and shape of a variable, known when the program is drawn."""

    dtype: np.dtype
    shape: tuple[int, ...]

    @classmethod
    def of(cls, value: Any) -> Type:
        array = np.asarray(value)
        return cls(array.dtype, array.shape)

    @property
    def zeros(self) -> np.ndarray:
        return np.zeros(self.shape, self.dtype)


# Variables are integers; a scope maps them to types, an environment to arrays.
Scope = dict[int, Type]
Environment = Mapping[int, Any]


@dataclass(frozen=True)
class Body:
    """A block of statements with parameter and result variables."""

    parameters: Sequence[int]
    statements: Sequence[Statement]
    results: Sequence[int]

    @property
    def loops(self) -> int:
        """The depth of nested loops over sizes."""
        return max(
            ((s.kind in ("scan", "map")) + max((b.loops for b in s.bodies), default=0) for s in self.statements), default=0
        )


@dataclass(frozen=True)
class Statement:
    """A statement that computes `results` from `operands`, with nested bodies and settings."""

    kind: str
    results: Sequence[int]
    operands: Sequence[int]
    bodies: Sequence[Body]
    settings: Mapping[str, Any]


# The ops of straight-line statements, in functions that both NumPy and dlc.numpy have.
OPS: dict[str, Callable[..., Any]] = {
    "add": lambda xp, x, y: xp.add(x, y),
    "subtract": lambda xp, x, y: xp.subtract(x, y),
    "multiply": lambda xp, x, y: xp.multiply(x, y),
    "larger": lambda xp, x, y: xp.maximum(x, y),
    "where": lambda xp, x, y: xp.where(xp.less(x, y), x, xp.negative(y)),
    "less": lambda xp, x, y: xp.less(x, y),
    "matmul": lambda xp, x, y: xp.matmul(x, y),
    "negative": lambda xp, x: xp.negative(x),
    "sum": lambda xp, x: xp.sum(x),
    "sum_axis": lambda xp, x: xp.sum(x, axis=0),
    "cumsum": lambda xp, x: xp.cumsum(x, axis=0),
    "flip": lambda xp, x: xp.flip(x, axis=0),
    "flat": lambda xp, x: xp.reshape(x, (-1,)),
    "transpose": lambda xp, x: xp.transpose(x),
    "twice": lambda xp, x: xp.stack([x, x]),
    "take": lambda xp, x, i: xp.take(x, _clip_index(xp, x, i), axis=0),
    "update": lambda xp, x, i: _update(xp, x, _clip_index(xp, x, i)),
    "cast": lambda xp, x, dtype: xp.asarray(x, dtype=dtype),
    "holds": lambda xp, x, than: xp.greater(xp.sum(x), than),
    "index": lambda xp, x, maximum: xp.asarray(xp.clip(xp.sum(x), -1, maximum), dtype=np.int64),
    "fit": lambda xp, x, like, same_shape: _convert_like(xp, x, like, same_shape),
    "constant": lambda xp, array: array,
    "scaled": lambda xp, x: xp.multiply(x, x.shape[0] * 0.5 + x.shape[0] / 2),
    "numbered": lambda xp, x: xp.add(x, xp.subtract(xp.arange(1, x.shape[0] + 1), xp.arange(x.shape[0] - 1, -1, -1))),
    "halves": lambda xp, x: xp.concatenate([x, x])[x.shape[0] // 2 : x.shape[0] // 2 + x.shape[0]],
    "rolled": lambda xp, x: xp.roll(x, 2, axis=0),
    "sections": lambda xp, x: xp.concatenate([xp.array_split(x, 3)[k] for k in (2, 0, 1)]),
    "alternate": lambda xp, x: xp.concatenate([x, x])[::2],
    "diagonal": lambda xp, x: xp.multiply(xp.eye(x.shape[0], dtype=np.float32), x),
    "inner": lambda xp, x: _update_slices(xp, x),
    "branch_on_size": lambda xp, x, size: xp.negative(x) if x.shape[0] == size else x,
}

# Additional ops of smooth programs, on floats.
SMOOTH_OPS: dict[str, Callable[..., Any]] = {
    "sine": lambda xp, x: xp.sin(x),
    "bounded": lambda xp, x: xp.tanh(x),
    "distance": lambda xp, x, y: xp.sqrt(xp.add(xp.square(xp.subtract(x, y)), 1.0)),
    "ratio": lambda xp, x, y: xp.divide(x, xp.add(xp.abs(y), 0.5)),
    "root": lambda xp, x: xp.where(xp.greater(x, 0), xp.sqrt(xp.where(xp.greater(x, 0), x, 1.0)), 0.0),
    "product": lambda xp, x: xp.prod(x, axis=0),
    "largest": lambda xp, x: xp.max(x, axis=0),
}
# Ops that may increase magnitudes; their results are clipped.
GROWS = {
    "add",
    "subtract",
    "multiply",
    "matmul",
    "sum",
    "sum_axis",
    "cumsum",
    "distance",
    "ratio",
    "product",
    "scaled",
    "numbered",
}
BINARY = {"add", "subtract", "multiply", "larger", "where", "less", "matmul", "take", "update", "distance", "ratio"}


def compute(xp: Any, name: str, operands: Sequence[Any], settings: Mapping[str, Any]) -> Any:
    result = (OPS | SMOOTH_OPS)[name](xp, *operands, **settings)
    return xp.clip(result, -MAX_MAGNITUDE, MAX_MAGNITUDE) if name in GROWS else result


def _clip_index(xp: Any, x: Any, i: Any) -> Any:
    return xp.asarray(xp.clip(xp.sum(i), 0, x.shape[0] - 1), dtype=np.int64)


def _update(xp: Any, x: Any, index: Any) -> Any:
    if xp is np:
        x = x.copy()
        x[index] = 7
        return x
    return dnp.at(x)[index].set(7)


def _update_slices(xp: Any, x: Any) -> Any:
    """Shift all rows but the first and the last by one, then set every other row to 3."""
    if xp is np:
        y = x.copy()
        y[1:-1] = x[:-2]
        y[1::2] = 3
        return y
    return dnp.at(dnp.at(x)[1:-1].set(x[:-2]))[1::2].set(3)


def _convert_like(xp: Any, x: Any, like: Any, same_shape: bool) -> Any:
    """Combine `x` with `like` into a value with the dtype and shape of `like`."""
    if like.dtype == BOOL:
        return xp.not_equal(like, xp.greater(xp.sum(x), 0))
    total = xp.add(like, x if same_shape else xp.sum(x))
    return xp.asarray(xp.clip(total, -MAX_MAGNITUDE, MAX_MAGNITUDE), dtype=like.dtype)


class RandomControl:
    """The program of a seed: its `inputs`, and a body with parameters for them."""

    def __init__(self, seed: int, smooth: bool = False) -> None:
        self.random = random.Random(seed)
        self.dtypes = SMOOTH_DTYPES if smooth else DTYPES
        self.ops = [n for n in (*OPS, *(SMOOTH_OPS if smooth else ())) if n not in ("holds", "index", "fit")]
        self.sizes = self.random.choices(SIZES, k=3)
        self._variables = 0
        rng = np.random.default_rng(seed)
        self.inputs: list[np.ndarray] = []
        for _ in range(self.random.randint(2, 3)):
            shape = self._shape()
            array = rng.integers(-4, 5, shape).astype(self.random.choice(self.dtypes))
            # Avoid integers, at which functions such as a maximum have kinks.
            self.inputs.append(array + rng.uniform(-0.4, 0.4, shape) if smooth and array.dtype.kind == "f" else array)
        parameters = [self._variable() for _ in self.inputs]
        scope: Scope = {v: Type.of(a) for v, a in zip(parameters, self.inputs, strict=True)}
        statements = self._statements(scope, MAX_DEPTH, self.random.randint(1, 2))
        variables = [v for s in statements for v in s.results]
        self.body = Body(parameters, statements, variables[-6:])

    def _variable(self) -> int:
        self._variables += 1
        return self._variables

    def _shape(self) -> tuple[int, ...]:
        return tuple(self.random.choice(self.sizes) for _ in range(self.random.choice([0, 1, 1, 2])))

    def _statements(self, scope: Scope, depth: int, controls: int) -> list[Statement]:
        """Draw statements with `controls` loops and branches among them; extends the scope."""
        statements: list[Statement] = []
        for _ in range(controls):
            self._compute(scope, statements, self.random.randint(0, 1))
            if depth:
                kind = self.random.choice([self._cond, self._switch, self._while, self._fori, self._scan, self._map])
                statements.append(kind(scope, statements, depth))
        self._compute(scope, statements, self.random.randint(0 if statements else 1, 2))
        return statements

    def _body(self, scope: Scope, depth: int, parameters: Sequence[Type], finish: Callable[..., list[int]]) -> Body:
        """Draw a body with parameters of these types; `finish(scope, statements, variables)` returns its results."""
        inner = dict(scope)
        variables = [self._variable() for _ in parameters]
        inner.update(zip(variables, parameters, strict=True))
        statements = self._statements(inner, depth - 1, self.random.choice([0, 1, 1, 2]) if depth > 1 else 0)
        results = finish(inner, statements, variables)
        return Body(variables, statements, results)

    # Straight-line statements

    def _compute(self, scope: Scope, statements: list[Statement], count: int) -> None:
        """Draw `count` statements with random ops."""
        for _ in range(20):
            if count <= 0:
                return
            name = self.random.choice(self.ops)
            settings: dict[str, Any] = {}
            if name == "constant":
                array = np.array(self.random.choices(range(-4, 5), k=6)).astype(self.random.choice(self.dtypes))
                settings, operands = {"array": array[: self.random.randint(1, 6)]}, []
            else:
                operands = [self._any(scope) for _ in range(1 + (name in BINARY))]
                if name == "branch_on_size":
                    settings = {"size": self.random.choice([*self.sizes, 1])}
                if name == "cast":
                    settings = {"dtype": self.random.choice(self.dtypes)}
            if self._suits(name, [scope[v] for v in operands]):
                self._add(scope, statements, name, operands, **settings)
                count -= 1

    @staticmethod
    def _suits(name: str, types: Sequence[Type]) -> bool:
        first = types[0] if types else None
        if any(t.dtype == BOOL for t in types):
            return name in ("flip", "flat", "twice") and len(first.shape) == 1
        if name in SMOOTH_OPS and any(t.dtype.kind != "f" for t in types):
            return False
        match name:
            case "matmul":
                return all(len(t.shape) in (1, 2) for t in types) and types[0].shape[-1] == types[1].shape[0]
            case "take" | "update":
                return first.shape[:1] not in ((), (0,))
            case "numbered" | "diagonal":
                return len(first.shape) == 1
            case "sum_axis" | "cumsum" | "flip" | "product" | "scaled" | "inner" | "branch_on_size":
                return len(first.shape) > 0
            case "halves" | "rolled" | "sections" | "alternate":
                return len(first.shape) > 0
            case "largest":
                return first.shape[:1] not in ((), (0,))
            case "flat" | "transpose":
                return len(first.shape) == 2
            case "twice":
                return len(first.shape) < 2
            case "add" | "subtract" | "multiply" | "larger" | "where" | "less" | "distance" | "ratio":
                try:
                    return len(np.broadcast_shapes(*(t.shape for t in types))) < 3
                except ValueError:
                    return False
        return True

    def _add(self, scope: Scope, statements: list[Statement], name: str, operands: Sequence[int], **settings: Any) -> int:
        variable = self._variable()
        scope[variable] = Type.of(compute(np, name, [scope[v].zeros for v in operands], settings))
        statements.append(Statement("compute", [variable], operands, [], {"name": name, **settings}))
        return variable

    def _any(self, scope: Scope, suits: Callable[[Type], bool] = lambda t: True) -> int:
        """Choose a suitable variable, mostly a recent one."""
        candidates = [v for v, t in scope.items() if suits(t)]
        return candidates[-min(len(candidates), 1 + int(self.random.expovariate(0.5)))]

    def _number(self, scope: Scope) -> int:
        return self._any(scope, lambda t: t.dtype != BOOL)

    def _fit(self, scope: Scope, statements: list[Statement], like: int) -> int:
        """Return a variable with the type of `like`."""
        same = [v for v, t in scope.items() if t == scope[like]]
        if self.random.random() < 0.3:
            return self.random.choice(same)
        x = self._number(scope)
        return self._add(scope, statements, "fit", [x, like], same_shape=scope[x].shape == scope[like].shape)

    def _next(self, scope: Scope, statements: list[Statement], state: int) -> int:
        """Return the next state of a loop: the state with one row updated, or another value of its type."""
        operands = [state, self._number(scope)]
        if self._suits("update", [scope[v] for v in operands]) and self.random.random() < 0.2:
            return self._add(scope, statements, "update", operands)
        return self._fit(scope, statements, state)

    # Loops and branches

    def _define(
        self, scope: Scope, kind: str, types: Sequence[Type], operands: Sequence[int], bodies: Sequence[Body], **settings: Any
    ) -> Statement:
        results = [self._variable() for _ in types]
        scope.update(zip(results, types, strict=True))
        settings["tree"] = self.random.choice(list(TREES))
        return Statement(kind, results, operands, bodies, settings)

    def _branches(self, scope: Scope, kind: str, selector: int, count: int, depth: int) -> Statement:
        like = [self._any(scope) for _ in range(self.random.randint(1, 2))]
        operands = [self._any(scope) for _ in range(self.random.randint(0, 2))]

        def finish(inner: Scope, statements: list[Statement], _: list[int]) -> list[int]:
            return [self._fit(inner, statements, v) for v in like]

        bodies = [self._body(scope, depth, [scope[v] for v in operands], finish) for _ in range(count)]
        return self._define(scope, kind, [scope[v] for v in like], [selector, *operands], bodies)

    def _cond(self, scope: Scope, statements: list[Statement], depth: int) -> Statement:
        selector = self._add(scope, statements, "holds", [self._number(scope)], than=self.random.randint(-3, 3))
        return self._branches(scope, "cond", selector, 2, depth)

    def _switch(self, scope: Scope, statements: list[Statement], depth: int) -> Statement:
        count = self.random.randint(1, 4)
        selector = self._add(scope, statements, "index", [self._number(scope)], maximum=count)
        return self._branches(scope, "switch", selector, count, depth)

    def _initial_state(self, scope: Scope) -> list[int]:
        return [self._any(scope) for _ in range(self.random.randint(1, 3))]

    def _while(self, scope: Scope, statements: list[Statement], depth: int) -> Statement:
        """A loop with up to four iterations that continues while a sum is large enough."""
        limit = self._add(scope, statements, "index", [self._number(scope)], maximum=4)
        first = self._initial_state(scope)

        def finish(inner: Scope, statements: list[Statement], parameters: list[int]) -> list[int]:
            return [self._next(inner, statements, v) for v in parameters]

        types = [scope[v] for v in first]
        body = self._body(scope, depth, types, finish)
        return self._define(scope, "while", types, [limit, *first], [body], min_sum=self.random.randint(-60, 0))

    def _fori(self, scope: Scope, statements: list[Statement], depth: int) -> Statement:
        lower = self.random.randint(-1, 2)
        bounds: dict[str, Any] = {"lower": lower, "upper": lower + self.random.randint(-1, 3)}
        first = self._initial_state(scope)
        operands = list(first)
        if self.random.random() < 0.4:
            operands.insert(0, self._add(scope, statements, "index", [self._number(scope)], maximum=3))
            del bounds["upper"]

        def finish(inner: Scope, statements: list[Statement], parameters: list[int]) -> list[int]:
            return [self._next(inner, statements, v) for v in parameters[1:]]

        types = [scope[v] for v in first]
        body = self._body(scope, depth, [Type(np.dtype(np.int64), ()), *types], finish)
        return self._define(scope, "fori", types, operands, [body], **bounds)

    def _sequences(self, scope: Scope) -> tuple[list[int], int]:
        """Choose variables with equal sizes of axis 0; return them and that size."""
        vectors = {v: t for v, t in scope.items() if t.shape}
        if not vectors:
            return [], self.random.randint(0, 3)
        length = self.random.choice(list(vectors.values())).shape[0]
        candidates = [v for v, t in vectors.items() if t.shape[0] == length]
        return self.random.sample(candidates, min(len(candidates), self.random.randint(1, 2))), length

    def _scan(self, scope: Scope, statements: list[Statement], depth: int) -> Statement:
        first = self._initial_state(scope)
        xs, length = self._sequences(scope)
        collected: list[Type] = []

        def finish(inner: Scope, statements: list[Statement], parameters: list[int]) -> list[int]:
            following = [self._next(inner, statements, v) for v in parameters[: len(first)]]
            ys = [self._any(inner) for _ in range(self.random.randint(0, 2))]
            collected.extend(inner[v] for v in ys)
            return [*following, *ys]

        elements = [Type(scope[v].dtype, scope[v].shape[1:]) for v in xs]
        types = [scope[v] for v in first]
        body = self._body(scope, depth, [*types, *elements], finish)
        result_types = [*types, *(Type(t.dtype, (length, *t.shape)) for t in collected)]
        settings = {"first": len(first), "length": length, "reverse": self.random.random() < 0.3}
        return self._define(
            scope, "scan", result_types, [*first, *xs], [body], collected=result_types[len(first) :], **settings
        )

    def _map(self, scope: Scope, statements: list[Statement], depth: int) -> Statement:
        xs, length = self._sequences(scope)
        if not xs:
            return self._scan(scope, statements, depth)
        collected: list[Type] = []

        def finish(inner: Scope, statements: list[Statement], parameters: list[int]) -> list[int]:
            ys = [self._any(inner) for _ in range(self.random.randint(1, 2))]
            collected.extend(inner[v] for v in ys)
            return ys

        body = self._body(scope, depth, [Type(scope[v].dtype, scope[v].shape[1:]) for v in xs], finish)
        result_types = [Type(t.dtype, (length, *t.shape)) for t in collected]
        return self._define(scope, "map", result_types, xs, [body], collected=result_types)


# Containers (pytrees): functions that pack values, optionally with dict entries in reverse order, and that unpack them.
TREES: dict[str, tuple[Callable[[list[Any], bool], Any], Callable[[Any], list[Any]]]] = {
    "tuple": (lambda values, reverse: tuple(values), list),
    "dict": (
        lambda values, reverse: dict(list(enumerate(values))[:: -1 if reverse else 1]),
        lambda tree: [tree[k] for k in sorted(tree)],
    ),
    "nested": (
        lambda values, reverse: {"rest": values[1:], "first": (values[0], None) if values else ()},
        lambda tree: [*tree["first"][:1], *tree["rest"]],
    ),
}


@dataclass(frozen=True)
class Interpreter:
    """Interpreter of a program, with the array functions of one module and the control flow of another.

    Without `original_sizes`, input sizes differ from those for which the program was drawn; the results of a loop without
    iterations are then unknown.
    """

    xp: Any
    control: Any
    original_sizes: bool = True

    def run(self, body: Body, environment: Environment, arguments: Sequence[Any]) -> list[Any]:
        values = {**environment, **dict(zip(body.parameters, arguments, strict=True))}
        for statement in body.statements:
            results = getattr(self, f"_{statement.kind}")(statement, values, [values[v] for v in statement.operands])
            values.update(zip(statement.results, results, strict=True))
        return [values[v] for v in body.results]

    def _compute(self, statement: Statement, values: Environment, operands: list[Any]) -> list[Any]:
        settings = {k: v for k, v in statement.settings.items() if k != "name"}
        return [compute(self.xp, statement.settings["name"], operands, settings)]

    def _branches(self, statement: Statement, values: Environment) -> list[Callable[..., Any]]:
        pack, _ = TREES[statement.settings["tree"]]
        return [lambda *args, b=b, k=k: pack(self.run(b, values, args), k % 2 == 1) for k, b in enumerate(statement.bodies)]

    def _cond(self, statement: Statement, values: Environment, operands: list[Any]) -> list[Any]:
        _, unpack = TREES[statement.settings["tree"]]
        return unpack(self.control.cond(operands[0], *self._branches(statement, values), *operands[1:]))

    def _switch(self, statement: Statement, values: Environment, operands: list[Any]) -> list[Any]:
        _, unpack = TREES[statement.settings["tree"]]
        return unpack(self.control.switch(operands[0], self._branches(statement, values), *operands[1:]))

    def _while(self, statement: Statement, values: Environment, operands: list[Any]) -> list[Any]:
        pack, unpack = TREES[statement.settings["tree"]]
        (body,), (limit, *first), xp = statement.bodies, operands, self.xp

        def goes_on(state: Any) -> Any:
            small = xp.greater(xp.sum(unpack(state["carry"])[0]), statement.settings["min_sum"])
            return xp.logical_and(xp.less(state["step"], limit), small)

        def step(state: Any) -> Any:
            return {"carry": pack(self.run(body, values, unpack(state["carry"])), True), "step": state["step"] + 1}

        return unpack(self.control.while_loop(goes_on, step, {"step": np.int64(0), "carry": pack(first, False)})["carry"])

    def _fori(self, statement: Statement, values: Environment, operands: list[Any]) -> list[Any]:
        pack, unpack = TREES[statement.settings["tree"]]
        settings, (body,) = statement.settings, statement.bodies
        upper, first = (settings["upper"], operands) if "upper" in settings else (operands[0], operands[1:])

        def step(i: Any, carry: Any) -> Any:
            return pack(self.run(body, values, [self.xp.asarray(i, dtype=np.int64), *unpack(carry)]), True)

        return unpack(self.control.fori_loop(settings["lower"], upper, step, pack(first, False)))

    def _scan(self, statement: Statement, values: Environment, operands: list[Any]) -> list[Any]:
        pack, unpack = TREES[statement.settings["tree"]]
        settings, (body,) = statement.settings, statement.bodies
        count = settings["first"]

        def step(carry: Any, x: Any) -> Any:
            results = self.run(body, values, [*unpack(carry), *x])
            return pack(results[:count], True), tuple(results[count:])

        first = pack(operands[:count], False)
        # The length of sequences may be symbolic.
        length = settings["length"] if not operands[count:] else None
        last, stacked = self.control.scan(step, first, operands[count:], length, settings["reverse"])
        return [*unpack(last), *self._collected_arrays(statement, stacked)]

    def _map(self, statement: Statement, values: Environment, operands: list[Any]) -> list[Any]:
        (body,) = statement.bodies
        return self._collected_arrays(statement, self.control.map(lambda x: tuple(self.run(body, values, x)), operands))

    def _collected_arrays(self, statement: Statement, stacked: Sequence[Any]) -> list[Any]:
        """Return the arrays that a loop collects; for a loop without iterations, zeros of the recorded types."""
        types = statement.settings["collected"]
        if self.control is not PLAIN or all(t.shape[0] for t in types):
            return list(stacked)
        if not self.original_sizes:
            raise ValueError("a loop without steps, of other sizes than the program's")
        return [t.zeros for t in types]


def _while_loop(cond_fun: Callable[[Any], Any], body_fun: Callable[[Any], Any], value: Any) -> Any:
    while cond_fun(value):
        value = body_fun(value)
    return value


def _fori_loop(lower: Any, upper: Any, body_fun: Callable[[Any, Any], Any], value: Any) -> Any:
    for i in range(int(lower), int(upper)):
        value = body_fun(i, value)
    return value


def _scan(f: Callable[[Any, Any], Any], carry: Any, xs: list[Any], length: int | None, reverse: bool) -> Any:
    (length,) = {len(x) for x in xs} or {length}
    collected: dict[int, tuple[Any, ...]] = {}
    for k in range(length)[:: -1 if reverse else 1]:
        carry, collected[k] = f(carry, [x[k] for x in xs])
    return carry, [np.stack(column) for column in zip(*(collected[k] for k in range(length)), strict=True)]


# Python's own loops and branches, with the arguments of those of dlc.lax.
PLAIN = SimpleNamespace(
    cond=lambda pred, true_fun, false_fun, *operands: (true_fun if pred else false_fun)(*operands),
    switch=lambda index, branches, *operands: branches[np.clip(index, 0, len(branches) - 1)](*operands),
    while_loop=_while_loop,
    fori_loop=_fori_loop,
    scan=_scan,
    map=lambda f, xs: _scan(lambda _, x: (None, f(x)), None, xs, None, False)[1],
)
