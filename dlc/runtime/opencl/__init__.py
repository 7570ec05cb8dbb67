"""Execution on OpenCL devices.

devices.py                discover devices, describe them as targets, select one by name
kernel.py                 a kernel's source text and the features that it needs
build.py                  build kernels, with a cache of binaries; isolated_build.py: in separate processes
artifact.py               a compiled program and its serialization
program.py                calls of a program; commands.py: its launches as commands in a device's queue
array.py                  arrays on a device, copied to the host when they are read
driver.py                 access to PyOpenCL
"""
