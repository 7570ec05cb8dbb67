"""The host program: launches and control flow on buffers.

evaluate_weight_expressions.py   folds expressions of weights
bufferize_host.py                turns dispatches into launches; control_flow.py: in loops and branches
form_sections.py                 runs launches of small kernels concurrently; choose_sections.py decides which
overlap_collectives.py           starts collectives early, and waits before their results are read
plan_arena.py                    assigns each buffer an offset in one arena (arena.py) for its lifetime (lifetimes.py)
"""
