"""A store that lives and dies with its process."""
