"""The models that users call.

model.py                  the base class: validates arguments, runs the program, names the results
io_conversion.py          models with inputs or outputs that are not tensors: strings, lists, None
variants.py               models that are imported at run time: a variant per set of input values or shapes
specialization_cache.py   a dynamic-shape program and specializations per shape; saved_specializations.py: in a file
lru_cache.py              the LRU cache of variants and specializations
recompilations.py         counts and logs compilations at run time
"""
