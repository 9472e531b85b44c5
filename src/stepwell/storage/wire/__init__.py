"""The stored format: the JSON of commits, outcomes and log entries."""
