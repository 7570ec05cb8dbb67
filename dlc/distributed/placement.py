"""The placement of a function on a mesh: the shardings of its arguments and results, as `dlc.jit` takes them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from dlc.dialects.dl.distributed.sharding import PartialSpec
from dlc.distributed.distributed_array import DistributedArray
from dlc.distributed.partition_spec import P, spec_trees, specs_of_leaves
from dlc.frontend.pytree import Tree
from dlc.passes.sharding.propagate import Spec
from dlc.runtime.collectives.mesh import Mesh


@dataclass(frozen=True)
class Placement:
    """A mesh, and trees of specs for the arguments and results of a function.

    `in_shardings` is one tree for all arguments or a tuple with one per parameter, `out_shardings` a tree for the result. A `P`
    or None in a tree applies to all leaves below; None leaves them to propagation.
    """

    mesh: Mesh
    in_shardings: Any
    out_shardings: Any
    # Seconds per byte of arguments for the automatic choice of shardings; None without one.
    memory_price: float | None = None

    def input_specs(self, parameters: Sequence[str], tree: Tree, leaves: Sequence[Any]) -> list[PartialSpec | None]:
        """Return the annotation of each leaf of the (args, kwargs) tree of a call.

        A `DistributedArray` on this mesh keeps its sharding where `in_shardings` has none. Raises DTypeError for a tree of
        another structure.
        """
        positional, named = tree.children
        of = spec_trees(self.in_shardings, parameters, len(positional.keys))
        arguments = [
            *((k, None, child) for k, child in zip(positional.keys, positional.children, strict=True)),
            *((len(parameters), str(name), child) for name, child in zip(named.keys, named.children, strict=True)),
        ]
        specs = [
            spec
            for position, name, child in arguments
            for spec in specs_of_leaves(of(int(str(position)), name), child, f"in_shardings[{name or position}]")
        ]
        return [self._annotation(spec, leaf) for spec, leaf in zip(specs, leaves, strict=True)]

    def _annotation(self, spec: P | None, leaf: Any) -> PartialSpec | None:
        if spec is not None:
            return spec.padded(leaf.ndim if hasattr(leaf, "ndim") else len(getattr(leaf, "shape", ())), ())
        return self.spec_of(leaf)

    def spec_of(self, x: Any) -> Spec | None:
        """Return the sharding of a `DistributedArray` on this mesh; None for others, since equal names may be other ranks."""
        return x.spec if isinstance(x, DistributedArray) and x.mesh == self.mesh else None

    def output_specs(self, tree: Tree, ranks: Sequence[int]) -> list[PartialSpec | None]:
        """Return the annotation of each result, given the structure and the ranks of the results."""
        specs = specs_of_leaves(self.out_shardings, tree, "out_shardings")
        return [None if spec is None else spec.padded(rank, ()) for spec, rank in zip(specs, ranks, strict=True)]
