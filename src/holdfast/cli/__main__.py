"""`python -m holdfast.cli`, where the script `holdfast` is not on the path."""

from .main import main

main()
