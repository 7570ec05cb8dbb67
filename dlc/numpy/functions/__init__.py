"""The functions of `dlc.numpy` and those of its methods, one file per family."""
