"""What runs compiled models, and needs no compiler: neither xDSL, onnx nor LLVM are imported here.

host_program.py   what runs in which order on which buffers, as plain data; execute.py: in Python
bounds.py         which parts of the buffers that is given, whatever a file says
open_program.py   the same where sizes come with a call; input_sizes.py: what they are; size_function.py: what follows
artifact.py       a compiled program; variants.py, by_sizes.py: models of several; kept.py, recompilations.py: how many
kernel_object.py  a kernel's code; image.py: a program as one block of bytes; checksum.py: of a file's sections
container.py      their file: a header and sections; formats/: what it says of them; load.py: the model in a file
computing.py      what Python computes in a program, by NumPy: selection.py; control.py: what loops compute, and print
model.py          what users call
cpu/              kernels' objects in memory, the program that runs them, its threads
opencl/           devices, arrays on them, the program as commands in a device's queue
"""
