"""Tasks of one CPU thread whose register tiles share cache blocks, packed panels, prefetches or zeros (`BlockedTiles`).

`choose_blocked_tiles.py` chooses plans with packed panels, `choose_streaming.py` plans for operands that few tiles
read, `choose_zero_skipping.py` what is skipped. `blocked_task.py` generates the code, with `prefetch.py` and
`zero_skipping.py`.
"""
