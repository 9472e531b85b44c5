"""Opens a run, or stores it without driving it: from the definition and the options of a call to a position."""
