"""The host program: launches and control flow on buffers.

`evaluate_weight_expressions.py` folds expressions of weights. `bufferize_host.py` turns dispatches into launches, also in
loops and branches (`control_flow.py`); `plan_arena.py` assigns each buffer an offset in one arena (`arena.py`) for its
lifetime (`lifetimes.py`).
"""
