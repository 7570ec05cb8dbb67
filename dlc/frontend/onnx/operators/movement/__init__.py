"""Data movement: operators that move, index, select or sort elements."""
