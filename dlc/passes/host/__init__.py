"""The host program: what runs when, on which buffers.

`evaluate_weight_expressions.py` computes what hangs on weights alone. `bufferize_host.py` makes launches of dispatches, in
loops and branches too (`control_flow.py`); `plan_arena.py` gives each buffer a place in one arena (`arena.py`) for as long as
it lives (`lifetimes.py`).
"""
