"""The tests; what several rooms of them use is in `support`."""
