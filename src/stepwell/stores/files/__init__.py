"""A store in a directory that people can read: one folder per run, one JSON file per record."""
