"""Collective operations between the ranks of a mesh, and the transports that move their data.

A rank is one of the processes (or threads) that run the same program, each on its shards.

mesh.py           numbers the ranks
transport.py      the interface of a transport; threads.py: ranks as threads of one process; mpi.py: ranks as processes
operations.py     the collective ops of `dl` on arrays; native_calls.py: run by native code (mpi_functions.py)
shards.py         shards of arrays
start.py          joins an MPI job, which ends when one rank fails
monitor.py        the process that reports killed and missing ranks
program_check.py  compares the programs of all ranks
"""
