"""The host program as plain data, which says what runs in which order on which buffers, whatever executes it.

host_program.py   its instructions, where all sizes are known
open_program.py   where sizes come with a call; known_sizes.py: as one of known sizes, for those of a call
bounds.py         which parts of the buffers kernels are given, whatever a file says
kernel_text.py    how often a kernel's functions run; one text of several kernels
execute.py        the instructions in Python; computing.py: those that only Python can execute
"""
