"""The rules that every store keeps, chapter by chapter."""
