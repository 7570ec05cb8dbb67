"""The machine that dlc runs on: its architecture, its processors and their cgroup quota, and their use by compilations."""
