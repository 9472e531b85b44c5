"""Rules for lists and searches: runs, checkpoints, open requests and wake-up times."""
