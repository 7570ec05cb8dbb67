"""Numbers of a few bits: quantised, several to a word, and their products."""
