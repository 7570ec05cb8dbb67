"""Kernels on buffers, cut into tasks and register tiles.

`bufferize_kernels.py` comes first, with `open_locals.py`. What a structured op touches is in `structured_ops.py`, `access.py`
and `scatter.py`; `form_nests.py` links ops to `nests.py`; `collapse_iterators.py` makes their iterators as few as memory
allows.

Deciding: a `plan.py` for each nest, by `choose_tiles.py` and the rules in `tile_rules.py`, for a contraction whose tiles share
what a cache holds `choose_panels.py`, for two that go together `choose_sweeps.py` and `choose_turned_sweeps.py`; on a device
with groups `choose_groups.py`, for contractions by `contraction_cost.py`, and `choose_matrices.py` for those that its matrix
units multiply (`matrix_products.py`). `variants.py` are other plans that are worth trying, `explain_plan.py` says why.

Doing: `tile_kernels.py` is the walk and `apply_tiles.py` the grid. In it the stages go on one tile (`leaf.py`, with `ranges.py`
and `windows.py`), block by block (`blocked.py`, with `ahead.py`), together (`sweeps.py`, `hidden.py`; where rows are long,
`running.py` and `running_base.py`) or shared out to the items of a group (`group.py`; for contractions `contract.py`, with
`promoted.py`, and `matrices.py`). On a device grids that do not depend on one another (`independent.py`) become one
(`join_grids.py`).
"""
