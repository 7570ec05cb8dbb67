"""Running on OpenCL devices.

devices.py                what there is, what it is compiled for, which one a target's name means
kernel.py                 a kernel's text, and what it needs of a device
build.py, build_apart.py  text to binaries, in processes of their own, through the cache
artifact.py               a compiled program: what runs it, and its file
program.py                the host program as commands in a device's queue
open_program.py           the same for sizes that come with a call
array.py                  arrays that stay on a device until somebody looks
driver.py                 PyOpenCL
"""
