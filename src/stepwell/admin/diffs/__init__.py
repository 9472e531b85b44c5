"""Differences between two checkpoints, as data and in words."""
