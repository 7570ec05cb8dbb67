"""The runtime: loads and runs compiled models, without the compiler, xDSL, onnx or LLVM.

load.py              load a model from a file
compiled_program.py  the union of the artifacts of all targets
models/              the model classes that users call: one program, or a set of specializations
program/             the host program as plain data: launches and control flow on buffers
sizes/               symbolic sizes at run time
python_ops/          ops that are evaluated in Python
saving/              the file format of models
cpu/                 native execution: bytecode, machine code, thread pools
opencl/              execution on OpenCL devices: buffers, command queues, kernel builds
"""
