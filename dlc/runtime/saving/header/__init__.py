"""Serialization of programs in the header of a model file, as JSON. Input is untrusted and validated."""
