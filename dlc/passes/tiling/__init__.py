"""Tiling: lower the structured ops of a kernel to a grid of tasks that compute register tiles.

Preparation: `bufferize_kernels.py` and `dynamic_locals.py` turn tensors into buffers. `structured_ops.py`,
`affine_access.py` and `scatter_tiles.py` describe which elements an op accesses. `form_nests.py` links ops into
loop nests (`loop_nests.py`); `collapse_iterators.py` merges their iterators.

Decisions: each nest gets a `TilePlan` (`plan.py`). On a CPU `choose_tiles.py` chooses it by the rules of
`tile_rules.py`; `choose_cache_blocking.py` handles contractions with packed panels and cache blocks,
`choose_attention.py` and `choose_transposed_attention.py` handle softmax(QKᵀ)·V. On a device with work-groups
`choose_group_tiles.py` chooses it, for contractions by the cost model of `contraction_cost.py`;
`choose_matrix_unit_tiles.py` handles products on matrix units (`matrix_products.py`). `variants.py` lists
alternative plans for autotuning, `explain_plan.py` describes a plan.

Code generation: `tile_kernels.py` is the pass, `apply_tiles.py` generates the grid. Inside it, structured ops run on
one register tile (`tile_body.py`, with `iteration_ranges.py` and `buffer_views.py`), per cache block
(`cache_blocking.py`, with `prefetch.py`), in fused loops (`fused_loops.py`, `masked_softmax.py`; for long rows
`online_softmax.py` and `softmax_rescaling.py`) or distributed over the work-items of a work-group
(`group_tile_body.py`; for contractions `contraction_tile_body.py` with `local_memory_operands.py`, and
`matrix_tile_body.py`). On a device, independent grids (`memory_effects.py`) are joined (`join_grids.py`).
"""
