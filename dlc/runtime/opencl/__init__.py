"""Running on OpenCL devices.

devices.py   what there is, what it is compiled for, which one a target's name means
program.py   the host program as commands in a device's queue
array.py     arrays that stay on a device until somebody looks
driver.py    PyOpenCL
"""
