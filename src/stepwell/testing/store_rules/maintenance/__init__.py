"""Rules for what changes or examines stored data outside a drive."""
