"""What runs compiled models, and needs no compiler: neither xDSL, onnx nor LLVM are imported here.

host_program.py   what runs in which order on which buffers, as plain data; host_format.py: as JSON; execute.py: in Python
artifact.py       a compiled model as one file
model.py          what users call
cpu/              kernels' objects in memory, the program that runs them, its threads
opencl/           devices, arrays on them, the program as commands in a device's queue
"""
