"""Which checkpoints and runs may go, and how they are removed."""
