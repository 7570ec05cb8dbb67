"""Ops of distributed programs: sharding annotations, and collectives between the ranks of a mesh."""
