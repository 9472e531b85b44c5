"""Differences between two checkpoints, as data and as text."""
