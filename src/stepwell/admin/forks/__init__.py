"""New runs created from a checkpoint of another, with an edited state."""
