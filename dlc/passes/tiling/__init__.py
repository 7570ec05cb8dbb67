"""Tiling: lower the structured ops of a kernel to a grid of tasks that compute register tiles.

Preparation: `bufferize_kernels.py` turns tensors into buffers. `structured_ops.py`, `affine_access.py` and
`scatter_tiles.py` describe which elements an op accesses. `form_nests.py` links ops into loop nests (`loop_nests.py`);
`merge_iterators.py` merges their iterators.

Decisions: each nest gets a plan, of one class per kind of code (`plan_kinds.py`, with the base class of `plan.py`), which
`choose_tiles.py` chooses: on a CPU independent register tiles (`tasks/`), cache blocks and packed panels (`blocking/`) or
fused attention (`attention/`), on a device with work-groups tiles of work-items (`groups/`) or matrix units
(`matrix_units/`). A plan checks and explains itself.

Code generation: `tile_kernels.py` is the pass, `apply_tiles.py` generates the grid. Inside it, each kind has its own
subclass of `TileBody` (`tile_body.py`): the structured ops on one register tile, built from the loops of
`iteration_ranges.py` and the views of `buffer_views.py`. On a device, independent grids (`memory_effects.py`) are joined
(`join_grids.py`).
"""
