"""What runs compiled models, and needs no compiler: neither xDSL, onnx nor LLVM are imported here.

load.py      the model in a file
models/      what users call: one program, or several of which each call has its own
program/     the host program, what runs in which order on which buffers, as plain data
sizes/       what follows from the sizes that come with a call
python_ops/  ops of a program that Python computes
saving/      the file of a model
cpu/         programs for the CPU: native code, the table that it executes, threads
opencl/      programs for OpenCL devices: arrays on them, commands in a queue
"""
