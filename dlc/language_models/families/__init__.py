"""Families of language models: each module builds a decoder from the configuration and the weights of a checkpoint."""
