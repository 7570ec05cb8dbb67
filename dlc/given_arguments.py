"""What a function is called with: arrays in their containers, settings, sizes that are open, what a caller gives away."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from math import copysign
from typing import Any, TypeAlias, cast

import numpy as np

from dlc.arrays import given_array, is_lent, require_unmasked
from dlc.dims import parse, parse_ranged
from dlc.errors import DTypeError, ShapeError
from dlc.frontend.pytree import Tree, argument_names, flatten, is_array_like, require_array_like
from dlc.frontend.trace import is_number
from dlc.frontend.traced import OpenSize
from dlc.misuse import require_bound
from dlc.runtime.models.model import require_on_cpu
from dlc.runtime.opencl.array import DeviceArray

# Of each leaf, its axes that are open.
OpenSizes: TypeAlias = "tuple[Mapping[int, OpenSize], ...]"


@dataclass(frozen=True)
class Given:
    """The arguments of a call: the leaves of a tree, and settings by name."""

    leaves: Sequence[Any]
    tree: Tree
    settings: tuple[tuple[str, Hashable], ...]


def told_apart(setting: object) -> Hashable:
    """What is another one for each setting that Python takes for an equal one: 1, 1.0 and True, 0.0 and -0.0, also inside."""
    kind = type(setting)
    if isinstance(setting, float):
        return kind, copysign(1, setting)
    if isinstance(setting, tuple):
        return kind, tuple([told_apart(part) for part in cast("tuple[object, ...]", setting)])
    if isinstance(setting, frozenset):
        return kind, frozenset([(part, told_apart(part)) for part in cast("frozenset[object]", setting)])
    if is_dataclass(setting) and not isinstance(setting, type):
        return kind, tuple([told_apart(getattr(setting, field.name)) for field in fields(setting)])
    return kind


class Parameters:
    """What each parameter of a function is for. Raises DTypeError for names and places that are none of its parameters."""

    def __init__(
        self,
        function: Callable[..., Any],
        static_argnames: Sequence[str],
        static_argnums: Sequence[int],
        donate_argnames: Sequence[str],
        dynamic: Mapping[str, Mapping[int, str]],
    ) -> None:
        if not callable(function):
            raise DTypeError(f"jit: {function!r} is no function")
        self.function = function
        self.name = str(getattr(function, "__name__", "function"))
        self._signature = inspect.signature(function)
        self._static = frozenset(static_argnames) | self._named(static_argnums)
        self._donated = frozenset(donate_argnames)
        for kind, argnames in (("static", self._static), ("donate", self._donated)):
            if unknown := argnames - set(self._signature.parameters):
                raise DTypeError(f"jit: {kind}_argnames {sorted(unknown)} are no arguments of {self.name}{self._signature}")
        if self._donated and (dynamic or self._donated & self._static):
            raise DTypeError(f"jit: donate_argnames {sorted(self._donated)}: neither settings, nor beside dynamic sizes")
        self._dynamic = {name: _open_sizes(name, axes) for name, axes in dynamic.items()}
        # For each structure of arguments, which sizes of its leaves are open.
        self._open: dict[Tree, OpenSizes] = {}

    @property
    def has_open_sizes(self) -> bool:
        return bool(self._dynamic)

    def _named(self, argnums: Sequence[int]) -> frozenset[str]:
        """The parameters at these places; negative ones count from the end."""
        names = list(self._signature.parameters)
        if wrong := [n for n in argnums if not -len(names) <= n < len(names)]:
            raise DTypeError(f"jit: static_argnums {wrong}: {self.name}{self._signature} has {len(names)} arguments")
        return frozenset(names[n] for n in argnums)

    def given(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Given:
        """The arguments of a call, as they are."""
        if not self._static:
            leaves, tree = flatten((args, kwargs))
            return Given(leaves, tree, ())
        try:
            bound = self._signature.bind(*args, **kwargs).arguments
        except TypeError:
            require_bound(self.function, args, kwargs)
            raise
        settings = tuple((n, v) for n, v in bound.items() if n in self._static)
        for name, value in settings:
            if not isinstance(value, Hashable):
                raise DTypeError(f"{self.name}: static argument {name} is a {type(value).__name__}, which cannot be hashed")
        leaves, tree = flatten(((), {n: v for n, v in bound.items() if n not in self._static}))
        return Given(leaves, tree, settings)

    def names(self, tree: Tree) -> list[str]:
        """What the leaves are called."""
        return argument_names(self.function, tree)

    def checked(self, given: Given) -> Given:
        """The same, with what another library lends as arrays.

        Raises DTypeError, naming the argument, for a leaf that is neither an array nor a number.
        """
        if not all([type(leaf) is np.ndarray or is_array_like(leaf) for leaf in given.leaves]):
            for leaf, name in zip(given.leaves, self.names(given.tree), strict=True):
                require_array_like(leaf, f"{name} of {self.name}")
        return replace(given, leaves=[self._read(leaf) if is_lent(leaf) else leaf for leaf in given.leaves])

    def native(self, leaf: Any, *, on_device: bool) -> Any:
        """A leaf as an array in this machine's byte order; one that is on a device may stay there."""
        if on_device and isinstance(leaf, DeviceArray):
            return leaf
        require_on_cpu(leaf, f"{self.name}: an argument")
        require_unmasked(leaf, f"{self.name}: an argument")
        array = self._read(leaf)
        return array if array.dtype.isnative else array.astype(array.dtype.newbyteorder("="))

    def _read(self, leaf: Any) -> Any:
        try:
            return given_array(leaf)
        except (ShapeError, DTypeError) as error:
            raise type(error)(f"{self.name}: an argument: {error}") from error

    def open_sizes(self, tree: Tree) -> OpenSizes:
        """Which sizes of each leaf are open; raises ShapeError where one is said of an argument that is not there."""
        if tree not in self._open:
            names = self.names(tree)
            missing = sorted(self._dynamic.keys() - set(names))
            if missing:
                raise ShapeError(f"jit: dynamic names {missing[0]!r}; the arguments of {self.name} are {', '.join(names)}")
            self._open[tree] = tuple(self._dynamic.get(name, {}) for name in names)
        return self._open[tree]

    def require_axes(self, tree: Tree, shapes: Sequence[tuple[int, ...]]) -> None:
        """Raises ShapeError for an open size of an axis that an argument does not have."""
        for name, shape, axes in zip(self.names(tree), shapes, self.open_sizes(tree), strict=True):
            if wrong := [axis for axis in axes if not 0 <= axis < len(shape)]:
                problem = f"jit: dynamic has axis {wrong[0]} of {name!r}, which has the shape {shape}"
                raise ShapeError(f"{problem}; its axes count from 0 to {len(shape) - 1}" if shape else f"{problem} and no axis")

    def require_stated(self, tree: Tree, shapes: Sequence[tuple[int, ...]]) -> None:
        """Raises ShapeError for a size outside of the range that it was said to have."""
        for name, shape, axes in zip(self.names(tree), shapes, self.open_sizes(tree), strict=True):
            for axis, (size, stated) in axes.items():
                if stated is not None and shape[axis] not in stated:
                    raise ShapeError(f"{name} of {self.name}: {size} = {shape[axis]}, which was said to be {stated}")

    def require_held(self, given: Given, taken: Mapping[int, set[np.dtype[Any]]]) -> None:
        """Raises DTypeError for a number that an integer dtype which it takes, by its place, does not hold."""
        for place, dtypes in taken.items():
            number = given.leaves[place]
            for dtype in dtypes:
                if not np.iinfo(dtype).min <= number <= np.iinfo(dtype).max:
                    problem = f"{self.names(given.tree)[place]} of {self.name}: {number} takes the {dtype} of an array it meets"
                    raise DTypeError(f"{problem}, which does not hold it; pass it with a dtype, such as numpy.int64({number})")

    def donated(self, tree: Tree) -> list[int]:
        """The leaves that the caller gives away."""
        if not self._donated:
            return []
        return [k for k, name in enumerate(self.names(tree)) if re.split(r"[.\[]", name)[0] in self._donated]

    def told(self, given: Given, shapes: Sequence[tuple[int, ...]]) -> dict[str, str]:
        """What matters of each argument, for people."""
        leaves = zip(self.names(given.tree), given.leaves, shapes, strict=True)
        return {**{name: _told(leaf, shape) for name, leaf, shape in leaves}, **{n: repr(v) for n, v in given.settings}}


def closed(shape: tuple[int, ...], open_: Mapping[int, OpenSize]) -> tuple[int | None, ...]:
    """A shape without what is open."""
    return tuple([None if axis in open_ else size for axis, size in enumerate(shape)]) if open_ else shape


def _told(leaf: Any, shape: tuple[int, ...]) -> str:
    return type(leaf).__name__ if is_number(leaf) else f"{leaf.dtype}[{', '.join(map(str, shape))}]"


def _open_sizes(name: str, axes: object) -> dict[int, OpenSize]:
    """What `dynamic` says of a parameter: an open size for some axes."""
    if not isinstance(axes, Mapping):
        raise DTypeError(f"jit: dynamic says {axes!r} of {name}; expected names by axis, such as {{0: 'N'}}")
    named = cast("Mapping[object, object]", axes)
    if wrong := [a for a, size in named.items() if not isinstance(a, int) or not isinstance(size, str)]:
        raise DTypeError(f"jit: dynamic says {named!r} of {name}, {wrong[0]!r} is no axis with a name; write {{0: 'N'}}")
    return {axis: _open_size(size) for axis, size in cast("Mapping[int, str]", axes).items()}


def _open_size(text: str) -> OpenSize:
    try:
        name, stated = parse_ranged(text)
    except ValueError as error:
        raise ShapeError(f"jit: {text!r}: {error}; write N, N:1..32 or N:1..") from error
    return parse(name), stated
