"""JSON schemas of responses: what they say, and whether a value matches one."""
