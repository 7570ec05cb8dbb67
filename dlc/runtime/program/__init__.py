"""The host program as plain data: an ordered list of launches and control flow on buffers, independent of the executor.

host_program.py     instructions and programs, whose sizes may be symbolic
size_operations.py  the size computations of a program; size_binding.py: their results for the sizes of a call
specialization.py   the program with static sizes for the sizes of a call
bounds.py           bounds checks of all buffer accesses, for programs from untrusted files
alignment.py        alignment checks of all kernel arguments
kernel_text.py      grids and source text of kernels
interpreter.py      executes instructions in Python; python_calls.py: ops that are implemented in Python
"""
