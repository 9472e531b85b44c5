"""Bytes: typed values to JSON and back."""
