"""What is made of an ONNX model to change it, or to see what changes it: derivatives and training steps, as programs.

Read in this order: `choosing.py` (which inputs and weights are meant), `derivatives.py` and `steps.py` (the programs),
`reading.py` (from a file to one of them), `data.py`, `loop.py` and `tuned.py` (`dlc train`: batches, steps, the file that is
written).
"""
