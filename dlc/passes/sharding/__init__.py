"""Partition a program over a mesh of ranks: propagate shardings, split ops, insert collectives.

factors.py          which axes of operands and results an op iterates over together: one rule per interface
propagate.py        the shardings of all values, from annotations
varying_axes.py     per-rank values inside of `dlc.shard_map`
choose.py           the shardings of the least estimated time
one_hot_program.py  the integer programs for this choice
reshard.py          the collectives that convert one sharding to another, and their cost
partition.py        the program of one rank, with collectives
split_rows.py       gathers and scatters of rows that are split
local_constants.py  the shards of constants that a rank stores
buckets.py          merges collectives into one message
canonicalize_collectives.py   expresses collectives by those that native code calls
"""
