"""One drive of a run, from its lease to its end, and the stream that moves it."""
