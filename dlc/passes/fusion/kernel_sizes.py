"""A kernel's own names for symbolic sizes, so that kernels that differ in nothing else are equal."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from dlc.dialects.dl.base import DimsAttr, DlOp, attribute, element_type_of, shape_of, tensor_type
from dlc.dialects.dl.interfaces import Contraction, Elementwise
from dlc.dialects.dl.movement.shaping import ReshapeOp
from dlc.dialects.dl.programs.ranges import representative
from dlc.dialects.sizes import symbol
from dlc.dims import Atom, Dim, Range, Size, UndecidableError, is_static, product, substitute
from dlc.errors import ShapeError
from dlc.ir import AffineDimExpr, Attribute


class KernelSizes:
    """The names `s0`, `s1`, … of the sizes that a kernel's types are made of; `meanings` is what each stands for outside.

    A factor that is no name itself, such as `(w - 1) // 2`, gets one: the host computes it.
    """

    def __init__(self, inputs: Sequence[Attribute], ops: Iterable[DlOp]) -> None:
        self._names: dict[Atom, str] = {}
        self.meanings: list[Size] = []
        for type_ in inputs:
            self._name(shape_of(type_))
        for op in ops:
            for value in op.properties.values():
                self._name(value.sizes if isinstance(value, DimsAttr) else ())
            for result in op.results:
                self._name(shape_of(result))

    def _name(self, sizes: Iterable[Size]) -> None:
        for atom in (a for size in sizes if isinstance(size, Dim) for a in size.atoms()):
            if atom not in self._names:
                self._names[atom] = symbol(len(self.meanings))
                self.meanings.append(Dim({(atom,): 1}))

    def representative(self, ranges: Mapping[str, Range]) -> tuple[int, ...]:
        """The sizes that plans are made for."""
        return tuple(representative(size, ranges) for size in self.meanings)

    def _renamed(self, sizes: Iterable[Size]) -> tuple[Size, ...]:
        return tuple(s.renamed(self._names) if isinstance(s, Dim) else s for s in sizes)

    def typed(self, type_: Attribute) -> Attribute:
        """A tensor type with the kernel's names."""
        return type_ if is_static(shape_of(type_)) else tensor_type(self._renamed(shape_of(type_)), element_type_of(type_))

    def property(self, value: Attribute) -> Attribute:
        """A property with the kernel's names."""
        return attribute(self._renamed(value.sizes)) if isinstance(value, DimsAttr) else value

    def meant(self, type_: Attribute) -> Attribute:
        """What a tensor type with the kernel's names is outside."""
        meanings = {symbol(k): size for k, size in enumerate(self.meanings)}
        return tensor_type((substitute(size, meanings) for size in shape_of(type_)), element_type_of(type_))


def require_decided(op: DlOp, origin: DlOp, names: KernelSizes) -> None:
    """Raises UndecidableError for an op of a kernel that is what its types say only for some sizes.

    Two symbolic sizes may be equal or not when the kernel runs, and one of them may be 1, which would be repeated. A result
    may have a name for what follows from the names of its operands, as that of `(w - 1) // 2` beside `w`.
    """
    if all(is_static(shape_of(v)) for v in (*op.operands, *op.results)):
        return
    where = f"{origin.name} at {origin.location}"
    try:
        same = [r.type for r in origin.results] == list(map(names.meant, op.infer()))
    except ShapeError as error:
        raise UndecidableError(f"{where}: {error}") from error
    if not same:
        raise UndecidableError(f"{where}: its sizes are divided")
    if isinstance(op, Elementwise):
        shape = shape_of(op.results[0])
        for value in op.operands:
            sizes = shape_of(value)
            if any(s not in (1, n) for s, n in zip(sizes, shape[len(shape) - len(sizes) :], strict=True)):
                raise UndecidableError(f"{where}: are {sizes} and {shape} equal?")
    if isinstance(op, ReshapeOp) and product(shape_of(op.x)) != product(shape_of(op.result)):
        raise UndecidableError(f"{where}: are {shape_of(op.x)} as many elements as {shape_of(op.result)}?")
    if isinstance(op, Contraction):
        structure = op.structure()
        for sizes, map_ in zip(structure.views, structure.maps, strict=True):
            for size, e in zip(sizes, map_.results, strict=True):
                if isinstance(e, AffineDimExpr) and size != structure.extents[e.position]:
                    raise UndecidableError(f"{where}: are {size} and {structure.extents[e.position]} equal?")
