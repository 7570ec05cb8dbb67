"""The models that users call.

model.py                  the base class: validates arguments, runs the program, names the results
io_conversion.py          models with inputs or outputs that are not tensors: strings, lists, None
mutating_model.py         models whose calls write new values of inputs into the arrays of the caller
specializations.py        the programs of a function or model, and the guards under which each serves a call
specialized_model.py      models with several programs, compiled at run time or saved in a file
"""
