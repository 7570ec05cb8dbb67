"""Work-groups of a device, whose work-items have register tiles.

Work-items are independent (`GroupTiles`), cooperate on each tile (`CooperativeTiles`), or share the operands of a
contraction in local memory (`PromotedTiles`). Each kind has a chooser, which uses `group_rules.py` (for contractions
also the cost model of `contraction_cost.py`), and a tile body (`group_tile_body.py`, or in the file of the plan), which
runs in a `WorkGroup`.
"""
