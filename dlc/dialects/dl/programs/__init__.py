"""What programs are made of: kernels, loops and branches, functions to transform; and what is asked of a program as a whole."""
