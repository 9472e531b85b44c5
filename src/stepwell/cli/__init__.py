"""The command line `stepwell`: see runs from a shell, without the program that made them."""
