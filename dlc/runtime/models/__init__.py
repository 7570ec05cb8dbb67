"""What users call.

model.py             a model: checks what it is given, runs its program, names what that returns
border.py            models that take or return more than tensors: text, lists, None
variants.py          a program for each set of values, or of shapes, that shapes in it hang on
by_sizes.py          what serves the sizes of most calls, and a model for others; saved_by_sizes.py: in a file
kept.py              the models of several that were asked for last
recompilations.py    what was compiled while a call waited for it
"""
