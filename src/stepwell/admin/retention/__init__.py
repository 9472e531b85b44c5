"""Retention: which checkpoints and runs a policy removes, and their removal."""
