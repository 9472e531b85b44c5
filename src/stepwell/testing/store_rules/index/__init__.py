"""Rules for lists and searches: runs, checkpoints, open requests, and the runs that are ready."""
