"""Models from files, PyTorch modules and JAX functions.

api.py                  compile_model, from_torch, devices and to_device
model_files.py          models in files: import, compile, inspect, profile
target_descriptions.py  descriptions of targets by name
jax_functions.py        from_jax
progress.py             progress of a compilation
"""
