"""What a person asks first about a run: what it is, why it stopped, what it needs, and what was done."""
