"""Running on the CPU.

artifact.py      a compiled program: what runs it, and its part of a file; kernel_object.py: a kernel's code
program.py       calls of native code that executes a program; open_program.py: whose sizes come with a call
context.py       what one call works on; recycled.py: memory for its results
direct.py        calls in which Python takes no part
table.py         the host program as a table of records
sizing.py        what sizes decide in it, as numbers that native code computes; deciding.py: where data decides some
image.py         a program as one block of bytes that runs without Python
code/            machine code: from objects to executable memory, and the run-time's own
"""
