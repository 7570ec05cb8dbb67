"""Pipeline parallelism: the layers of a network are split over a mesh axis, and micro-batches pass from rank to rank.

The schedule is 1F1B (Narayanan et al., "PipeDream", 2019; Shoeybi et al., 2021) in lockstep: in each tick a rank computes the
forward pass of one micro-batch and the backward pass of an earlier one. With S ranks, rank s computes the forward pass of
micro-batch t - s and the backward pass of micro-batch t - 2(S - 1) + s in tick t, and sends both results to its neighbors.
It stores the inputs of at most 2S - 1 micro-batches; backward passes compute activations again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

import dlc.numpy as dnp
from dlc import lax, tree
from dlc.calculus.custom_rules import custom_vjp
from dlc.calculus.linear_maps import vjp
from dlc.calculus.shard_maps import shard_map
from dlc.distributed.local_mesh import current_jit_mesh, require_axes
from dlc.distributed.partition_spec import P
from dlc.errors import ShapeError
from dlc.frontend.trace import with_user_line
from dlc.runtime.collectives.mesh import Mesh


def pipeline(
    layer: Callable[[Any, Any], Any],
    loss: Callable[[Any, Any, Any], Any],
    *,
    num_micro_batches: int,
    axis: str = "stage",
    batch_axes: Sequence[str] = (),
) -> Callable[[Any, Any, Any, Any], Any]:
    """Return the function `(layers, head, x, targets) -> loss` of a network whose layers are split over a mesh axis.

    `layers` is a tree of arrays whose axis 0 counts the layers; each rank has as many consecutive ones. `layer(parameters, h)`
    returns an array like `h`, and `loss(head, h, targets)` the mean loss of a micro-batch. `x` and `targets` have the batch as
    axis 0. The result is the mean of the losses of all micro-batches. It is differentiable in `layers`, `head` and `x`, which
    are floats. Without a mesh, or with one rank along `axis`, the layers run one after the other.

    Args:
        num_micro_batches: The number of parts of the batch of a rank. A rank computes in M of M + 2(S - 1) ticks, for M parts.
        axis: The mesh axis that splits the layers into S stages.
        batch_axes: Mesh axes over which the batch is split as well.

    Raises ShapeError for sizes that are not multiples, and DTypeError for an axis that the mesh does not have, or that repeats.
    """

    def scalar_loss(head: Any, h: Any, targets: Any) -> Any:
        value = loss(head, h, targets)
        if np.ndim(value):
            raise with_user_line(ShapeError(f"dlc.pipeline: the loss has shape {value.shape}; expected a scalar"))
        return value

    def call(layers: Any, head: Any, x: Any, targets: Any) -> Any:
        mesh = current_jit_mesh()
        if num_micro_batches < 1:
            raise with_user_line(ShapeError(f"dlc.pipeline: num_micro_batches = {num_micro_batches}; expected at least 1"))
        if mesh is None or mesh.sizes.get(axis) == 1:
            _require_multiple("the batch", x.shape[0], num_micro_batches)
            return _sequential(layer, scalar_loss, num_micro_batches, layers, head, x, targets)
        require_axes("dlc.pipeline", (axis, *batch_axes), mesh)
        _require_multiple("the batch", x.shape[0], num_micro_batches * mesh.shard_count(batch_axes))
        for leaf in tree.leaves(layers):
            if np.ndim(leaf) == 0:
                raise with_user_line(
                    ShapeError("dlc.pipeline: the layers contain a scalar; expected arrays whose axis 0 counts the layers")
                )
            _require_multiple("axis 0 of the layers", leaf.shape[0], mesh.sizes[axis])
        return _differentiable(_Pipeline(layer, scalar_loss, num_micro_batches, axis, tuple(batch_axes), mesh))(
            layers, head, x, targets
        )

    return call


def _require_multiple(name: str, size: int, factor: int) -> None:
    if size % factor:
        raise with_user_line(ShapeError(f"dlc.pipeline: {name} has the size {size}; expected a multiple of {factor}"))


def _apply_layers(layer: Callable[[Any, Any], Any], layers: Any, h: Any) -> Any:
    return lax.scan(lambda h, parameters: (layer(parameters, h), None), h, layers)[0]


def _micro_batches(x: Any, count: int) -> Any:
    return dnp.reshape(x, (count, x.shape[0] // count, *x.shape[1:]))


def _sequential(layer: Any, loss: Any, count: int, layers: Any, head: Any, x: Any, targets: Any) -> Any:
    """Return the loss without a mesh."""

    def loss_of(state: None, batch: tuple[Any, Any]) -> tuple[None, Any]:
        return state, loss(head, _apply_layers(layer, layers, batch[0]), batch[1])

    return dnp.mean(lax.scan(loss_of, None, (_micro_batches(x, count), _micro_batches(targets, count)))[1])


def _differentiable(pipelined: _Pipeline) -> Callable[..., Any]:
    """Return the loss as a function whose forward rule computes the gradients as well."""
    value_and_gradients = pipelined.on_mesh()
    function = custom_vjp(lambda *arguments: value_and_gradients(*arguments)[0])

    def backward(gradients: tuple[Any, Any, Any], cotangent: Any) -> tuple[Any, ...]:
        return *(_scaled(gradient, cotangent) for gradient in gradients), None

    function.defvjp(value_and_gradients, backward)
    return function


@dataclass(frozen=True)
class _Pipeline:
    layer: Callable[[Any, Any], Any]
    loss: Callable[[Any, Any, Any], Any]
    count: int
    axis: str
    batch_axes: tuple[str, ...]
    mesh: Mesh

    @property
    def stages(self) -> int:
        return self.mesh.sizes[self.axis]

    def on_mesh(self) -> Callable[..., Any]:
        """Return the function of global arrays: the loss, and its gradients by layers, head and x."""
        layers, batch = P(self.axis), P(self.batch_axes)
        return shard_map(self.on_shards, in_specs=(layers, P(), batch, batch), out_specs=(P(), (layers, P(), batch)))

    def on_shards(self, layers: Any, head: Any, x: Any, targets: Any) -> tuple[Any, tuple[Any, Any, Any]]:
        """Run all ticks on the shards of a rank."""
        all_axes = (self.axis, *self.batch_axes)
        layers, head = (lax.pvary(parameters, all_axes) for parameters in (layers, head))
        xs, targets = (_micro_batches(array, self.count) for array in (x, targets))
        zero, slots = dnp.zeros_like(xs[0]), 2 * self.stages - 1
        state = {
            "h": zero, "cotangent": zero, "saved": dnp.zeros((slots, *zero.shape), x.dtype),
            "gradients": tree.map(dnp.zeros_like, (layers, head)), "x": dnp.zeros_like(xs),
        }  # fmt: skip

        def tick(state: Any, t: Any) -> tuple[Any, Any]:
            return self.tick(state, t, layers, head, xs, targets)

        state, losses = lax.scan(tick, lax.pvary(state, all_axes), np.arange(self.count + 2 * (self.stages - 1)))
        layer_gradients, head_gradients = state["gradients"]
        if self.batch_axes:
            layer_gradients = lax.psum(layer_gradients, self.batch_axes)
        sums = layer_gradients, lax.psum(head_gradients, all_axes), lax.psum(state["x"], self.axis).reshape(x.shape)
        share = 1 / (self.count * self.mesh.shard_count(self.batch_axes))
        return _scaled(lax.psum(dnp.sum(losses), all_axes), share), _scaled(sums, share)

    def tick(self, state: Any, t: Any, layers: Any, head: Any, xs: Any, targets: Any) -> tuple[Any, Any]:
        """Compute one forward and one backward pass, and exchange their results; passes of no micro-batch are discarded.

        Returns the next state, and the loss of the backward pass's micro-batch on the last stage.
        """
        stage, last = lax.axis_index(self.axis), self.stages - 1
        forward, backward = t - stage, t - 2 * last + stage
        is_backward, is_last = (backward >= 0) & (backward < self.count), stage == last
        h = dnp.where(stage == 0, xs[dnp.clip(forward, 0, self.count - 1)], state["h"])
        saved = _with_entry(state["saved"], forward % len(state["saved"]), h)
        own_targets = targets[dnp.clip(backward, 0, self.count - 1)]

        def local(layers: Any, head: Any, h: Any) -> tuple[Any, Any]:
            y = _apply_layers(self.layer, layers, h)
            return y, self.loss(head, y, own_targets)

        def masked(gradient: Any) -> Any:
            return dnp.where(is_backward, gradient, 0)

        (_, loss), pull = vjp(local, layers, head, saved[backward % len(saved)])
        # The last stage begins the backward pass with its loss.
        cotangent = dnp.where(is_last, 0, state["cotangent"]), dnp.where(is_last, 1, 0).astype(loss.dtype)
        *gradients, cotangent = tree.map(masked, pull(cotangent))
        ring = [(k, (k + 1) % self.stages) for k in range(self.stages)]
        next_state = {
            "h": lax.ppermute(_apply_layers(self.layer, layers, h), self.axis, ring),
            "cotangent": lax.ppermute(cotangent, self.axis, [(target, source) for source, target in ring]),
            "saved": saved,
            "gradients": tree.map(dnp.add, state["gradients"], tuple(gradients)),
            "x": dnp.where(stage == 0, _with_entry(state["x"], dnp.clip(backward, -1, self.count), cotangent), state["x"]),
        }
        return next_state, dnp.where(is_backward & is_last, loss, 0)


def _with_entry(entries: Any, index: Any, entry: Any) -> Any:
    """Return the entries along axis 0 with one of them replaced; none if the index is out of bounds."""
    positions = dnp.reshape(dnp.arange(entries.shape[0]), (-1, *[1] * entry.ndim))
    return dnp.where(positions == index, entry, entries)


def _scaled(arrays: Any, factor: Any) -> Any:
    def scale(x: Any) -> Any:
        return (x * factor).astype(x.dtype)

    return tree.map(scale, arrays)
