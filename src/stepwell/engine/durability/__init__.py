"""Keeps the work of a drive: its lease, what is logged of a superstep, commits that are stored later."""
