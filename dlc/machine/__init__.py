"""The machine that dlc runs on: its architecture, its processors, and their use during compilation."""
