"""Collective operations between the ranks of a mesh, and the transports that move their data.

A rank is one of the processes (or threads) that run the same program, each on its shards. `mesh.py` numbers the ranks,
`transport.py` is the interface of a transport, `threads.py` runs ranks as threads of one process, and `operations.py` defines
the collective ops of `dl` on arrays.
"""
