"""`@dlc.jit`: Python functions compiled for the shapes and dtypes of their calls.

decorator.py        jit
jit_function.py     a jitted function: its specializations, calls and methods
lowered.py          a function that is traced for some arguments
call_arguments.py   the arguments of a call: array leaves, static and donated arguments
eager.py            evaluation op by op without compilation
"""
