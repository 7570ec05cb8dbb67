"""Performance measurement of models and kernels, compared with other runtimes and the limits of the machine."""
