"""Find the store that is meant, open it, and read the history of a run."""
