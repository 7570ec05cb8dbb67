"""Sizes that come with a call.

input_sizes.py     what they are: from the shapes of what the call gives
size_function.py   what follows from them, as one Python function; size_code.py: as operations that native code carries out
domain.py          those that one compilation serves, where it does not serve all
"""
