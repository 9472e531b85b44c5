"""Runs as files: exported from one store, imported into another."""
