"""Execution on the CPU.

artifact.py              a compiled program and its serialization; kernel_object.py: the code of a kernel
program.py               calls of a program
context.py               the state of one call: slots and arena; buffer_pool.py: memory of results
direct_calls.py          calls that bypass the Python interpreter
record_table.py          the bytecode of the host program
slot_inits.py            slots with run-time sizes; data_dependent_sizes.py: data-dependent sizes
program_image.py         a program as one position-independent block that runs without Python
code/                    machine code: loading objects, relocations, the native runtime
"""
