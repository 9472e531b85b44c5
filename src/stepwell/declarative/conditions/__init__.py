"""Conditions as data: what they ask, how they are evaluated."""
