"""A directory that a person can read: one folder per run, one JSON file per record."""
