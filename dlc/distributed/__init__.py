"""Programs on many processes: meshes of ranks, shardings of arrays, and arrays whose shards belong to ranks.

partition_spec.py      `dlc.P`, and trees of specs for arguments and results
placement.py           the shardings that `dlc.jit` takes; dtensor_placements.py: placements of PyTorch's DTensor
meshes.py              `dlc.make_mesh`; local_mesh.py: the meshes of the functions that are being traced
distributed_array.py   `dlc.distribute` and `dlc.collect`
annotations.py         `dlc.shard`
sharded_model.py       the program of each rank as a model on global arrays; sharded_direct_calls.py: its repeated calls
mesh_model.py          compiles programs for the ranks of a mesh
saved_arrays.py        `dlc.save_arrays` and `dlc.load_arrays`
"""
