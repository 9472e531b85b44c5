"""New runs that continue from a checkpoint of another, with changes."""
