"""`python -m stepwell.cli`, where the script `stepwell` is not on the path."""

from .main import main

main()
