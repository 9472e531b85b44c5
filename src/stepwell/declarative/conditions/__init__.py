"""Conditions on values as data: their kinds, their evaluation and their description in words."""
