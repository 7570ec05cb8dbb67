"""Pipeline parallelism: a function is cut into stages, each rank runs one, and micro-batches pass from rank to rank.

function of one micro-batch          # stages.py: cut at the calls of dlc.stage
→ functions of the stages
→ arrays in flat buffers             # buffers.py: equal sizes for all stages, since ranks run one program
→ ticks                              # schedule.py: 1F1B
→ function of global arrays          # pipelined_functions.py: `dlc.pipeline`
"""
