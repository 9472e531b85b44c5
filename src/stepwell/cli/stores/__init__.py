"""Stores as the command line sees them: find the one that is meant, open it, read the history of a run."""
