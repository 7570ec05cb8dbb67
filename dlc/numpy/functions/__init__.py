"""The functions of `dlc.numpy` and the methods of its arrays, one file per family."""
