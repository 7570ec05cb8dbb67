"""The host program as plain data: an ordered list of launches and control flow on buffers, independent of the executor.

host_program.py     its instructions, with static sizes
dynamic_program.py  dynamic-shape programs; specialization.py: their conversion to static ones for the sizes of a call
bounds.py           bounds checks of all buffer accesses, for programs from untrusted files
alignment.py        alignment checks of all kernel arguments
kernel_text.py      grids and source text of kernels
interpreter.py      executes instructions in Python; python_calls.py: ops that are implemented in Python
"""
