"""Kernel-local symbols for symbolic dimensions, so that kernels that differ only in symbol names are equal."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from dlc.dialects.dims_attribute import DimsAttr
from dlc.dialects.dl.base import DlOp, attribute, element_type_of, shape_of, tensor_type
from dlc.dialects.dl.interfaces import Contraction, Elementwise
from dlc.dialects.dl.movement.shaping import ReshapeOp
from dlc.dialects.dl.programs.size_ranges import representative
from dlc.dialects.sizes import symbol
from dlc.errors import ShapeError
from dlc.ir import AffineDimExpr, Attribute
from dlc.shapes.dims import Atom, Dim, Size, UndecidableError, is_static, product, substitute
from dlc.shapes.ranges import SizeRange


class KernelSizes:
    """The kernel-local symbols `s0`, `s1`, … in a kernel's types; `outer_sizes` are the program's sizes of these.

    A factor that is not a symbol, such as `(w - 1) // 2`, also gets a symbol: the host computes it.
    """

    def __init__(self, inputs: Sequence[Attribute], ops: Iterable[DlOp]) -> None:
        self._names: dict[Atom, str] = {}
        self.outer_sizes: list[Size] = []
        for type_ in inputs:
            self._register(shape_of(type_))
        for op in ops:
            for value in op.properties.values():
                self._register(value.sizes if isinstance(value, DimsAttr) else ())
            for result in op.results:
                self._register(shape_of(result))

    def _register(self, sizes: Iterable[Size]) -> None:
        for atom in (a for size in sizes if isinstance(size, Dim) for a in size.atoms()):
            if atom not in self._names:
                self._names[atom] = symbol(len(self.outer_sizes))
                self.outer_sizes.append(Dim({(atom,): 1}))

    def representative(self, ranges: Mapping[str, SizeRange]) -> tuple[int, ...]:
        """Return the representative sizes for tile plans."""
        return tuple(representative(size, ranges) for size in self.outer_sizes)

    def _renamed(self, sizes: Iterable[Size]) -> tuple[Size, ...]:
        return tuple(s.rename_atoms(self._names) if isinstance(s, Dim) else s for s in sizes)

    def kernel_type(self, type_: Attribute) -> Attribute:
        """Return a tensor type in the kernel's names."""
        return type_ if is_static(shape_of(type_)) else tensor_type(self._renamed(shape_of(type_)), element_type_of(type_))

    def property(self, value: Attribute) -> Attribute:
        """Return a property in the kernel's names."""
        return attribute(self._renamed(value.sizes)) if isinstance(value, DimsAttr) else value

    def outer_type(self, type_: Attribute) -> Attribute:
        """Return a tensor type in the program's sizes, given one in the kernel's names."""
        outer_sizes = {symbol(k): size for k, size in enumerate(self.outer_sizes)}
        return tensor_type((substitute(size, outer_sizes) for size in shape_of(type_)), element_type_of(type_))


def require_size_independent_types(op: DlOp, origin: DlOp, names: KernelSizes) -> None:
    """Raise UndecidableError if the types of a kernel's op are correct only for some sizes.

    Two symbolic sizes may or may not be equal at run time, and one of them may be 1, which would broadcast. A result may
    have a separate name for a size that depends on those of the operands, such as `(w - 1) // 2` and `w`.
    """
    if all(is_static(shape_of(v)) for v in (*op.operands, *op.results)):
        return
    op_text = f"{origin.name} at {origin.location}"
    try:
        is_equal = [r.type for r in origin.results] == list(map(names.outer_type, op.infer()))
    except ShapeError as error:
        raise UndecidableError(f"{op_text}: {error}") from error
    if not is_equal:
        raise UndecidableError(f"{op_text}: its result's shape does not follow from the kernel's sizes")
    if isinstance(op, Elementwise):
        shape = shape_of(op.results[0])
        for value in op.operands:
            sizes = shape_of(value)
            if any(s not in (1, n) for s, n in zip(sizes, shape[len(shape) - len(sizes) :], strict=True)):
                raise UndecidableError(f"{op_text}: shapes {sizes} and {shape} are not equal for all sizes")
    if isinstance(op, ReshapeOp) and product(shape_of(op.x)) != product(shape_of(op.result)):
        raise UndecidableError(
            f"{op_text}: shapes {shape_of(op.x)} and {shape_of(op.result)} differ in their number of elements for some sizes"
        )
    if isinstance(op, Contraction):
        structure = op.structure()
        for sizes, map_ in zip(structure.views, structure.maps, strict=True):
            for size, e in zip(sizes, map_.results, strict=True):
                if isinstance(e, AffineDimExpr) and size != structure.extents[e.position]:
                    raise UndecidableError(
                        f"{op_text}: sizes {size} and {structure.extents[e.position]} are not equal for all sizes"
                    )
