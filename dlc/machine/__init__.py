"""The machine that dlc runs on: its architecture, its processors, and how a compilation uses them."""
