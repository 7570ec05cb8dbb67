"""Random programs of nested loops and branches, seeded: written once, interpreted with `dlc.lax` and with Python's own.

All numbers are whole and stay small, so that floats are exact as well and every way of computing them gives the same. A smooth
program is one to be differentiated: its floats are of 64 bits and any number, and functions with slopes are among its ops.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np

import dlc.numpy as dnp

DEPTH = 3
# A program has three of them: next to none, few, and next to the lanes of a vector.
SIZES = (0, 1, 2, 3, 3, 5, 7, 8, 9)
LARGEST = 99
DTYPES = tuple(np.dtype(t) for t in (np.float32, np.float32, np.int64, np.int32))
SMOOTH_DTYPES = tuple(np.dtype(t) for t in (np.float64, np.float64, np.float64, np.int64))
BOOL = np.dtype(bool)


class Type(NamedTuple):
    """What is known of a variable when the program is written."""

    dtype: np.dtype
    shape: tuple[int, ...]

    @classmethod
    def of(cls, value: Any) -> Type:
        array = np.asarray(value)
        return cls(array.dtype, array.shape)

    @property
    def zeros(self) -> np.ndarray:
        return np.zeros(self.shape, self.dtype)


# Variables have numbers; a scope says of each what it is, an environment which array.
Scope = dict[int, Type]
Environment = Mapping[int, Any]


@dataclass(frozen=True)
class Body:
    """Statements with the variables that they are given and those that they result in."""

    given: Sequence[int]
    statements: Sequence[Statement]
    results: Sequence[int]

    @property
    def loops(self) -> int:
        """How many loops over sizes are at most within one another."""
        return max(
            ((s.kind in ("scan", "map")) + max((b.loops for b in s.bodies), default=0) for s in self.statements), default=0
        )


@dataclass(frozen=True)
class Statement:
    """`made` are the variables that it makes of `read` with bodies; `settings` are the rest of it."""

    kind: str
    made: Sequence[int]
    read: Sequence[int]
    bodies: Sequence[Body]
    settings: Mapping[str, Any]


# What straight-line statements compute, with functions that NumPy and dlc.numpy have.
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
    "take": lambda xp, x, i: xp.take(x, _place(xp, x, i), axis=0),
    "update": lambda xp, x, i: _update(xp, x, _place(xp, x, i)),
    "cast": lambda xp, x, dtype: xp.asarray(x, dtype=dtype),
    "holds": lambda xp, x, than: xp.greater(xp.sum(x), than),
    "index": lambda xp, x, most: xp.asarray(xp.clip(xp.sum(x), -1, most), dtype=np.int64),
    "fit": lambda xp, x, like, alike: _fitted(xp, x, like, alike),
    "constant": lambda xp, array: array,
    "scaled": lambda xp, x: xp.multiply(x, x.shape[0] * 0.5 + x.shape[0] / 2),
    "numbered": lambda xp, x: xp.add(x, xp.subtract(xp.arange(1, x.shape[0] + 1), xp.arange(x.shape[0] - 1, -1, -1))),
    "halves": lambda xp, x: xp.concatenate([x, x])[x.shape[0] // 2 : x.shape[0] // 2 + x.shape[0]],
    "alternate": lambda xp, x: xp.concatenate([x, x])[::2],
    "diagonal": lambda xp, x: xp.multiply(xp.eye(x.shape[0], dtype=np.float32), x),
    "inner": lambda xp, x: _inner(xp, x),
    "asked": lambda xp, x, size: xp.negative(x) if x.shape[0] == size else x,
}

# What smooth programs compute besides, of floats.
SMOOTH_OPS: dict[str, Callable[..., Any]] = {
    "sine": lambda xp, x: xp.sin(x),
    "bounded": lambda xp, x: xp.tanh(x),
    "distance": lambda xp, x, y: xp.sqrt(xp.add(xp.square(xp.subtract(x, y)), 1.0)),
    "ratio": lambda xp, x, y: xp.divide(x, xp.add(xp.abs(y), 0.5)),
    "root": lambda xp, x: xp.where(xp.greater(x, 0), xp.sqrt(xp.where(xp.greater(x, 0), x, 1.0)), 0.0),
    "product": lambda xp, x: xp.prod(x, axis=0),
    "largest": lambda xp, x: xp.max(x, axis=0),
}
# What the others give is no larger than what they are given.
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
    return xp.clip(result, -LARGEST, LARGEST) if name in GROWS else result


def _place(xp: Any, x: Any, i: Any) -> Any:
    return xp.asarray(xp.clip(xp.sum(i), 0, x.shape[0] - 1), dtype=np.int64)


def _update(xp: Any, x: Any, place: Any) -> Any:
    if xp is np:
        x = x.copy()
        x[place] = 7
        return x
    return dnp.at(x)[place].set(7)


def _inner(xp: Any, x: Any) -> Any:
    """Rows but the first and the last become those before them, and every other one a number."""
    if xp is np:
        y = x.copy()
        y[1:-1] = x[:-2]
        y[1::2] = 3
        return y
    return dnp.at(dnp.at(x)[1:-1].set(x[:-2]))[1::2].set(3)


def _fitted(xp: Any, x: Any, like: Any, alike: bool) -> Any:
    """Something of `x` with the dtype and shape of `like`, which are `alike` if they have one shape."""
    if like.dtype == BOOL:
        return xp.not_equal(like, xp.greater(xp.sum(x), 0))
    total = xp.add(like, x if alike else xp.sum(x))
    return xp.asarray(xp.clip(total, -LARGEST, LARGEST), dtype=like.dtype)


class RandomControl:
    """The program of a seed: `inputs` and a body that is given them."""

    def __init__(self, seed: int, smooth: bool = False) -> None:
        self.random = random.Random(seed)
        self.dtypes = SMOOTH_DTYPES if smooth else DTYPES
        self.ops = [n for n in (*OPS, *(SMOOTH_OPS if smooth else ())) if n not in ("holds", "index", "fit")]
        self.sizes = self.random.choices(SIZES, k=3)
        self._variables = 0
        numbers = np.random.default_rng(seed)
        self.inputs: list[np.ndarray] = []
        for _ in range(self.random.randint(2, 3)):
            shape = self._shape()
            array = numbers.integers(-4, 5, shape).astype(self.random.choice(self.dtypes))
            # No number at which something else holds on one side of it.
            self.inputs.append(array + numbers.uniform(-0.4, 0.4, shape) if smooth and array.dtype.kind == "f" else array)
        given = [self._variable() for _ in self.inputs]
        scope: Scope = {v: Type.of(a) for v, a in zip(given, self.inputs, strict=True)}
        statements = self._statements(scope, DEPTH, self.random.randint(1, 2))
        made = [v for s in statements for v in s.made]
        self.body = Body(given, statements, made[-6:])

    def _variable(self) -> int:
        self._variables += 1
        return self._variables

    def _shape(self) -> tuple[int, ...]:
        return tuple(self.random.choice(self.sizes) for _ in range(self.random.choice([0, 1, 1, 2])))

    def _statements(self, scope: Scope, depth: int, controls: int) -> list[Statement]:
        """Statements in `scope`, which they extend, so many loops and branches among them."""
        statements: list[Statement] = []
        for _ in range(controls):
            self._compute(scope, statements, self.random.randint(0, 1))
            if depth:
                kind = self.random.choice([self._cond, self._switch, self._while, self._count, self._scan, self._map])
                statements.append(kind(scope, statements, depth))
        self._compute(scope, statements, self.random.randint(0 if statements else 1, 2))
        return statements

    def _body(self, scope: Scope, depth: int, given: Sequence[Type], finish: Callable[..., list[int]]) -> Body:
        """A body that is given such variables; `finish(scope, statements, variables)` says what it results in."""
        inner = dict(scope)
        variables = [self._variable() for _ in given]
        inner.update(zip(variables, given, strict=True))
        statements = self._statements(inner, depth - 1, self.random.choice([0, 1, 1, 2]) if depth > 1 else 0)
        results = finish(inner, statements, variables)
        return Body(variables, statements, results)

    # Straight-line statements

    def _compute(self, scope: Scope, statements: list[Statement], count: int) -> None:
        """So many results of random ops."""
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
                if name == "asked":
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
            case "sum_axis" | "cumsum" | "flip" | "product" | "scaled" | "halves" | "alternate" | "inner" | "asked":
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
        """A variable that suits, mostly a late one."""
        found = [v for v, t in scope.items() if suits(t)]
        return found[-min(len(found), 1 + int(self.random.expovariate(0.5)))]

    def _number(self, scope: Scope) -> int:
        return self._any(scope, lambda t: t.dtype != BOOL)

    def _fit(self, scope: Scope, statements: list[Statement], like: int) -> int:
        """A variable of the type of another one."""
        same = [v for v, t in scope.items() if t == scope[like]]
        if self.random.random() < 0.3:
            return self.random.choice(same)
        x = self._number(scope)
        return self._add(scope, statements, "fit", [x, like], alike=scope[x].shape == scope[like].shape)

    def _next(self, scope: Scope, statements: list[Statement], state: int) -> int:
        """The next state of a loop: the state with another row, or something of its type."""
        operands = [state, self._number(scope)]
        if self._suits("update", [scope[v] for v in operands]) and self.random.random() < 0.2:
            return self._add(scope, statements, "update", operands)
        return self._fit(scope, statements, state)

    # Loops and branches

    def _made(
        self, scope: Scope, kind: str, types: Sequence[Type], read: Sequence[int], bodies: Sequence[Body], **settings: Any
    ) -> Statement:
        made = [self._variable() for _ in types]
        scope.update(zip(made, types, strict=True))
        settings["tree"] = self.random.choice(list(TREES))
        return Statement(kind, made, read, bodies, settings)

    def _branches(self, scope: Scope, kind: str, decides: int, count: int, depth: int) -> Statement:
        like = [self._any(scope) for _ in range(self.random.randint(1, 2))]
        operands = [self._any(scope) for _ in range(self.random.randint(0, 2))]

        def finish(inner: Scope, statements: list[Statement], _: list[int]) -> list[int]:
            return [self._fit(inner, statements, v) for v in like]

        bodies = [self._body(scope, depth, [scope[v] for v in operands], finish) for _ in range(count)]
        return self._made(scope, kind, [scope[v] for v in like], [decides, *operands], bodies)

    def _cond(self, scope: Scope, statements: list[Statement], depth: int) -> Statement:
        decides = self._add(scope, statements, "holds", [self._number(scope)], than=self.random.randint(-3, 3))
        return self._branches(scope, "cond", decides, 2, depth)

    def _switch(self, scope: Scope, statements: list[Statement], depth: int) -> Statement:
        count = self.random.randint(1, 4)
        decides = self._add(scope, statements, "index", [self._number(scope)], most=count)
        return self._branches(scope, "switch", decides, count, depth)

    def _carried(self, scope: Scope) -> list[int]:
        return [self._any(scope) for _ in range(self.random.randint(1, 3))]

    def _while(self, scope: Scope, statements: list[Statement], depth: int) -> Statement:
        """Up to a few steps, as long as a sum is small enough."""
        limit = self._add(scope, statements, "index", [self._number(scope)], most=4)
        first = self._carried(scope)

        def finish(inner: Scope, statements: list[Statement], given: list[int]) -> list[int]:
            return [self._next(inner, statements, v) for v in given]

        types = [scope[v] for v in first]
        body = self._body(scope, depth, types, finish)
        return self._made(scope, "while", types, [limit, *first], [body], least=self.random.randint(-60, 0))

    def _count(self, scope: Scope, statements: list[Statement], depth: int) -> Statement:
        lower = self.random.randint(-1, 2)
        bounds: dict[str, Any] = {"lower": lower, "upper": lower + self.random.randint(-1, 3)}
        first = self._carried(scope)
        read = list(first)
        if self.random.random() < 0.4:
            read.insert(0, self._add(scope, statements, "index", [self._number(scope)], most=3))
            del bounds["upper"]

        def finish(inner: Scope, statements: list[Statement], given: list[int]) -> list[int]:
            return [self._next(inner, statements, v) for v in given[1:]]

        types = [scope[v] for v in first]
        body = self._body(scope, depth, [Type(np.dtype(np.int64), ()), *types], finish)
        return self._made(scope, "count", types, read, [body], **bounds)

    def _sequences(self, scope: Scope) -> tuple[list[int], int]:
        """Variables with elements along axis 0, and how many."""
        vectors = {v: t for v, t in scope.items() if t.shape}
        if not vectors:
            return [], self.random.randint(0, 3)
        length = self.random.choice(list(vectors.values())).shape[0]
        found = [v for v, t in vectors.items() if t.shape[0] == length]
        return self.random.sample(found, min(len(found), self.random.randint(1, 2))), length

    def _scan(self, scope: Scope, statements: list[Statement], depth: int) -> Statement:
        first = self._carried(scope)
        xs, length = self._sequences(scope)
        collected: list[Type] = []

        def finish(inner: Scope, statements: list[Statement], given: list[int]) -> list[int]:
            following = [self._next(inner, statements, v) for v in given[: len(first)]]
            ys = [self._any(inner) for _ in range(self.random.randint(0, 2))]
            collected.extend(inner[v] for v in ys)
            return [*following, *ys]

        elements = [Type(scope[v].dtype, scope[v].shape[1:]) for v in xs]
        types = [scope[v] for v in first]
        body = self._body(scope, depth, [*types, *elements], finish)
        made = [*types, *(Type(t.dtype, (length, *t.shape)) for t in collected)]
        settings = {"first": len(first), "length": length, "reverse": self.random.random() < 0.3}
        return self._made(scope, "scan", made, [*first, *xs], [body], collected=made[len(first) :], **settings)

    def _map(self, scope: Scope, statements: list[Statement], depth: int) -> Statement:
        xs, length = self._sequences(scope)
        if not xs:
            return self._scan(scope, statements, depth)
        collected: list[Type] = []

        def finish(inner: Scope, statements: list[Statement], given: list[int]) -> list[int]:
            ys = [self._any(inner) for _ in range(self.random.randint(1, 2))]
            collected.extend(inner[v] for v in ys)
            return ys

        body = self._body(scope, depth, [Type(scope[v].dtype, scope[v].shape[1:]) for v in xs], finish)
        made = [Type(t.dtype, (length, *t.shape)) for t in collected]
        return self._made(scope, "map", made, xs, [body], collected=made)


# Containers: how values are put into one, in either order of a dict's entries, and taken out.
TREES: dict[str, tuple[Callable[[list[Any], bool], Any], Callable[[Any], list[Any]]]] = {
    "tuple": (lambda values, turned: tuple(values), list),
    "dict": (
        lambda values, turned: dict(list(enumerate(values))[:: -1 if turned else 1]),
        lambda tree: [tree[k] for k in sorted(tree)],
    ),
    "nested": (
        lambda values, turned: {"rest": values[1:], "first": (values[0], None) if values else ()},
        lambda tree: [*tree["first"][:1], *tree["rest"]],
    ),
}


@dataclass(frozen=True)
class Interpreter:
    """Runs a program with the array functions of one module and the control flow of another.

    Of inputs that are not `typed`, whose sizes are others than the program's, what a loop without steps collects is unknown.
    """

    xp: Any
    control: Any
    typed: bool = True

    def run(self, body: Body, environment: Environment, given: Sequence[Any]) -> list[Any]:
        known = {**environment, **dict(zip(body.given, given, strict=True))}
        for statement in body.statements:
            results = getattr(self, f"_{statement.kind}")(statement, known, [known[v] for v in statement.read])
            known.update(zip(statement.made, results, strict=True))
        return [known[v] for v in body.results]

    def _compute(self, statement: Statement, known: Environment, read: list[Any]) -> list[Any]:
        settings = {k: v for k, v in statement.settings.items() if k != "name"}
        return [compute(self.xp, statement.settings["name"], read, settings)]

    def _branches(self, statement: Statement, known: Environment) -> list[Callable[..., Any]]:
        pack, _ = TREES[statement.settings["tree"]]
        return [lambda *given, b=b, k=k: pack(self.run(b, known, given), k % 2 == 1) for k, b in enumerate(statement.bodies)]

    def _cond(self, statement: Statement, known: Environment, read: list[Any]) -> list[Any]:
        _, unpack = TREES[statement.settings["tree"]]
        return unpack(self.control.cond(read[0], *self._branches(statement, known), *read[1:]))

    def _switch(self, statement: Statement, known: Environment, read: list[Any]) -> list[Any]:
        _, unpack = TREES[statement.settings["tree"]]
        return unpack(self.control.switch(read[0], self._branches(statement, known), *read[1:]))

    def _while(self, statement: Statement, known: Environment, read: list[Any]) -> list[Any]:
        pack, unpack = TREES[statement.settings["tree"]]
        (body,), (limit, *first), xp = statement.bodies, read, self.xp

        def goes_on(state: Any) -> Any:
            small = xp.greater(xp.sum(unpack(state["carry"])[0]), statement.settings["least"])
            return xp.logical_and(xp.less(state["step"], limit), small)

        def step(state: Any) -> Any:
            return {"carry": pack(self.run(body, known, unpack(state["carry"])), True), "step": state["step"] + 1}

        return unpack(self.control.while_loop(goes_on, step, {"step": np.int64(0), "carry": pack(first, False)})["carry"])

    def _count(self, statement: Statement, known: Environment, read: list[Any]) -> list[Any]:
        pack, unpack = TREES[statement.settings["tree"]]
        settings, (body,) = statement.settings, statement.bodies
        upper, first = (settings["upper"], read) if "upper" in settings else (read[0], read[1:])

        def step(i: Any, carry: Any) -> Any:
            return pack(self.run(body, known, [self.xp.asarray(i, dtype=np.int64), *unpack(carry)]), True)

        return unpack(self.control.fori_loop(settings["lower"], upper, step, pack(first, False)))

    def _scan(self, statement: Statement, known: Environment, read: list[Any]) -> list[Any]:
        pack, unpack = TREES[statement.settings["tree"]]
        settings, (body,) = statement.settings, statement.bodies
        count = settings["first"]

        def step(carry: Any, x: Any) -> Any:
            results = self.run(body, known, [*unpack(carry), *x])
            return pack(results[:count], True), tuple(results[count:])

        first = pack(read[:count], False)
        # Where there are elements their number may be an open size.
        length = settings["length"] if not read[count:] else None
        last, made = self.control.scan(step, first, read[count:], length, settings["reverse"])
        return [*unpack(last), *self._collected(statement, made)]

    def _map(self, statement: Statement, known: Environment, read: list[Any]) -> list[Any]:
        (body,) = statement.bodies
        return self._collected(statement, self.control.map(lambda x: tuple(self.run(body, known, x)), read))

    def _collected(self, statement: Statement, made: Sequence[Any]) -> list[Any]:
        """What a loop collects; Python does not know what that is where it takes no step."""
        types = statement.settings["collected"]
        if self.control is not PLAIN or all(t.shape[0] for t in types):
            return list(made)
        if not self.typed:
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
