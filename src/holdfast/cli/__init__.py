"""The command line `holdfast`: see runs from a shell, without the program that made them."""
