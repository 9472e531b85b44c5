"""One handler call: how it is made, and what its context offers."""
