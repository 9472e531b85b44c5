"""Which store a command works on, how it is opened, and with which keys."""
