"""Derivatives and training steps of ONNX models as programs.

Read in this order: `model_names.py` (select inputs and weights by name), `derivatives.py` and `training_step.py` (the
programs), `derived_program.py` (from a file to such a program), `data.py`, `training_loop.py` and `updated_model.py` (`dlc
train`: batches, steps, the written file).
"""
