"""The arguments of a call of a jitted function: array leaves, static settings, symbolic sizes, and donated arguments."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from math import copysign
from typing import Any, TypeAlias, cast

import numpy as np

from dlc.argument_validation.validate import require_call_signature
from dlc.arrays import TensorInfo, require_unmasked, supports_only_dlpack, to_numpy
from dlc.errors import DTypeError, OutOfRangeError, ShapeError
from dlc.frontend.function_tracing import SymbolicSize
from dlc.frontend.pytree import Tree, argument_names, flatten, is_array_like, require_array_like
from dlc.frontend.trace import is_python_scalar
from dlc.runtime.models.model import require_on_cpu
from dlc.runtime.opencl.array import DeviceArray
from dlc.shapes.dims import Size
from dlc.shapes.input_sizes import require_matching_inputs
from dlc.shapes.parsing import parse_size, parse_size_and_range
from dlc.shapes.ranges import SizeRange, require_in_range

# For each leaf, its symbolic dimensions by axis.
SymbolicSizes: TypeAlias = "tuple[Mapping[int, SymbolicSize], ...]"


@dataclass(frozen=True)
class CallArguments:
    """The leaves of a call's arguments, their tree structure, and the static settings by name."""

    leaves: Sequence[Any]
    tree: Tree
    settings: tuple[tuple[str, Hashable], ...]


def type_exact_key(setting: object) -> Hashable:
    """Return a key that distinguishes settings that Python compares equal: 1, 1.0 and True, 0.0 and -0.0, also nested."""
    setting_type = type(setting)
    if isinstance(setting, float):
        return setting_type, copysign(1, setting)
    if isinstance(setting, tuple):
        return setting_type, tuple([type_exact_key(element) for element in cast("tuple[object, ...]", setting)])
    if isinstance(setting, frozenset):
        return setting_type, frozenset([(element, type_exact_key(element)) for element in cast("frozenset[object]", setting)])
    if is_dataclass(setting) and not isinstance(setting, type):
        return setting_type, tuple([type_exact_key(getattr(setting, field.name)) for field in fields(setting)])
    return setting_type


class ParameterKinds:
    """The role of each parameter of a function: array, static setting, dynamic or donated.

    Raises DTypeError for names and positions that are not parameters of the function.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        static_argnames: Sequence[str],
        static_argnums: Sequence[int],
        donate_argnames: Sequence[str],
        dynamic: Mapping[str, Mapping[int, str]],
    ) -> None:
        if not callable(function):
            raise DTypeError(f"jit: expected a function, got {function!r}")
        self.function = function
        self.name = str(getattr(function, "__name__", "function"))
        self._signature = inspect.signature(function)
        self._static = frozenset(static_argnames) | self._names_at(static_argnums)
        self._donated = frozenset(donate_argnames)
        for kind, argnames in (("static", self._static), ("donate", self._donated)):
            if unknown := argnames - set(self._signature.parameters):
                raise DTypeError(f"jit: {kind}_argnames {sorted(unknown)}: no parameters of {self.name}{self._signature}")
        if self._donated and (dynamic or self._donated & self._static):
            raise DTypeError(
                f"jit: donate_argnames {sorted(self._donated)} cannot be static, nor be combined with dynamic dimensions"
            )
        self._dynamic = {name: _parse_dynamic_axes(name, axes) for name, axes in dynamic.items()}
        # Cache: the symbolic sizes of the leaves by tree structure.
        self._symbolic_sizes_by_tree: dict[Tree, SymbolicSizes] = {}

    @property
    def parameter_names(self) -> tuple[str, ...]:
        """The names of the function's parameters, in order."""
        return tuple(self._signature.parameters)

    def _names_at(self, argnums: Sequence[int]) -> frozenset[str]:
        """Return the parameters at these positions; negative ones count from the end."""
        names = list(self._signature.parameters)
        if invalid := [n for n in argnums if not -len(names) <= n < len(names)]:
            raise DTypeError(f"jit: static_argnums {invalid}: {self.name}{self._signature} has {len(names)} arguments")
        return frozenset(names[n] for n in argnums)

    def arguments(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> CallArguments:
        """Split the arguments of a call into leaves and static settings."""
        if not self._static:
            leaves, tree = flatten((args, kwargs))
            return CallArguments(leaves, tree, ())
        try:
            bound = self._signature.bind(*args, **kwargs).arguments
        except TypeError:
            require_call_signature(self.function, args, kwargs)
            raise
        settings = tuple((n, v) for n, v in bound.items() if n in self._static)
        for name, value in settings:
            if not isinstance(value, Hashable):
                raise DTypeError(f"{self.name}: static argument {name} is a {type(value).__name__}, which cannot be hashed")
        leaves, tree = flatten(((), {n: v for n, v in bound.items() if n not in self._static}))
        return CallArguments(leaves, tree, settings)

    def names(self, tree: Tree) -> list[str]:
        """Return the names of the leaves."""
        return argument_names(self.function, tree)

    def validated(self, arguments: CallArguments) -> CallArguments:
        """Return the arguments with DLPack-only arrays converted to NumPy.

        Raises DTypeError, naming the argument, for a leaf that is neither an array nor a number.
        """
        if not all([type(leaf) is np.ndarray or is_array_like(leaf) for leaf in arguments.leaves]):
            for leaf, name in zip(arguments.leaves, self.names(arguments.tree), strict=True):
                require_array_like(leaf, f"{name} of {self.name}")
        return replace(
            arguments, leaves=[self._read(leaf) if supports_only_dlpack(leaf) else leaf for leaf in arguments.leaves]
        )

    def native(self, leaf: Any, *, on_device: bool) -> Any:
        """Return a leaf as an array in native byte order; a device array stays on its device if `on_device`."""
        if on_device and isinstance(leaf, DeviceArray):
            return leaf
        require_on_cpu(leaf, f"{self.name}: an argument")
        require_unmasked(leaf, f"{self.name}: an argument")
        array = self._read(leaf)
        return array if array.dtype.isnative else array.astype(array.dtype.newbyteorder("="))

    def _read(self, leaf: Any) -> Any:
        try:
            return to_numpy(leaf)
        except (ShapeError, DTypeError) as error:
            raise type(error)(f"{self.name}: an argument: {error}") from error

    def symbolic_sizes(self, tree: Tree) -> SymbolicSizes:
        """Return the symbolic sizes of each leaf. Raises ShapeError if `dynamic` names an argument that is not passed."""
        if tree not in self._symbolic_sizes_by_tree:
            names = self.names(tree)
            missing = sorted(self._dynamic.keys() - set(names))
            if missing:
                raise ShapeError(f"jit: dynamic names {missing[0]!r}; the arguments of {self.name} are {', '.join(names)}")
            self._symbolic_sizes_by_tree[tree] = tuple(self._dynamic.get(name, {}) for name in names)
        return self._symbolic_sizes_by_tree[tree]

    def bind_sizes(self, tree: Tree, arrays: Sequence[Any]) -> tuple[list[TensorInfo], dict[str, int]]:
        """Return the types of the leaves, with symbolic sizes, and the values of the symbols for arrays or placeholders.

        Raises ShapeError for an axis that an array does not have, for sizes that differ, and for one outside of its range.
        """
        infos, ranges = list[TensorInfo](), dict[str, SizeRange]()
        for name, array, axes in zip(self.names(tree), arrays, self.symbolic_sizes(tree), strict=True):
            shape = list[Size](array.shape)
            if invalid := [axis for axis in axes if not 0 <= axis < len(shape)]:
                problem = f"jit: dynamic has axis {invalid[0]} of {name!r}, which has the shape {array.shape}"
                raise ShapeError(f"{problem}; its axes count from 0 to {len(shape) - 1}" if shape else f"{problem} and no axis")
            for axis, (size, allowed) in axes.items():
                shape[axis] = size
                if allowed is not None:
                    ranges[str(size)] = allowed
            infos.append(TensorInfo(name, tuple(shape), array.dtype))
        sizes = require_matching_inputs(self.name, infos, arrays)
        for info in infos:
            require_in_range(f"{info.name} of {self.name}", info.shape, sizes, ranges)
        return infos, sizes

    def require_representable(self, arguments: CallArguments, integer_dtypes: Mapping[int, set[np.dtype[Any]]]) -> None:
        """Raise DTypeError for a Python scalar that does not fit the integer dtypes to which it is converted.

        `integer_dtypes` has these dtypes by the position of the scalar among the leaves.
        """
        for position, dtypes in integer_dtypes.items():
            scalar = arguments.leaves[position]
            for dtype in dtypes:
                if not np.iinfo(dtype).min <= scalar <= np.iinfo(dtype).max:
                    name = f"{self.names(arguments.tree)[position]} of {self.name}"
                    problem = f"{scalar} does not fit {dtype}, the dtype of an array that it is combined with"
                    raise OutOfRangeError(f"{name}: {problem}; pass it with a dtype, such as numpy.int64({scalar})")

    def donated(self, tree: Tree) -> list[int]:
        """Return the positions of the leaves that the caller donates."""
        if not self._donated:
            return []
        return [k for k, name in enumerate(self.names(tree)) if re.split(r"[.\[]", name)[0] in self._donated]

    def describe(self, arguments: CallArguments, shapes: Sequence[tuple[int, ...]]) -> dict[str, str]:
        """Describe each argument for log messages: its dtype and shape, or its value."""
        leaves = zip(self.names(arguments.tree), arguments.leaves, shapes, strict=True)
        return {
            **{name: _describe_leaf(leaf, shape) for name, leaf, shape in leaves},
            **{n: repr(v) for n, v in arguments.settings},
        }


def _describe_leaf(leaf: Any, shape: tuple[int, ...]) -> str:
    return type(leaf).__name__ if is_python_scalar(leaf) else f"{leaf.dtype}[{', '.join(map(str, shape))}]"


def _parse_dynamic_axes(name: str, axes: object) -> dict[int, SymbolicSize]:
    """Parse the entry of `dynamic` for one parameter: symbolic sizes by axis."""
    if not isinstance(axes, Mapping):
        raise DTypeError(f"jit: dynamic: {name}: expected names by axis, such as {{0: 'N'}}, got {axes!r}")
    size_of_axis = cast("Mapping[object, object]", axes)
    if invalid := [a for a, size in size_of_axis.items() if not isinstance(a, int) or not isinstance(size, str)]:
        raise DTypeError(
            f"jit: dynamic: {name}: {invalid[0]!r} in {size_of_axis!r} is not an axis with a name; write {{0: 'N'}}"
        )
    return {axis: _parse_symbolic_size(name, size) for axis, size in cast("Mapping[int, str]", axes).items()}


def _parse_symbolic_size(parameter: str, text: str) -> SymbolicSize:
    try:
        name, allowed = parse_size_and_range(text)
    except ValueError as error:
        raise ShapeError(f"jit: dynamic: {parameter}: {text!r}: {error}; write N, N:1..32 or N:1..") from error
    return parse_size(name), allowed
