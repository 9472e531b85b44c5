"""What comes from outside is read, or refused by name; it is never run, and never costs anybody else anything."""
