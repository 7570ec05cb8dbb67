"""Tasks of one CPU thread that run all ops on one register tile after the other (`TaskTiles`).

`choose_task_tiles.py` and `choose_constant_products.py` choose plans by the rules of `tile_rules.py`, which all
plans on CPUs share; `variants.py` lists alternatives for autotuning. `task_tiles.py` has the plan, and generates the code.
"""
