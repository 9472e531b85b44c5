"""Runs seen, compared, forked and cleaned up from outside, without the program that made them."""
