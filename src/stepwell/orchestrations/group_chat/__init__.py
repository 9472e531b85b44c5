"""A conversation of many: one participant at a time has the floor."""
