"""`python -m stepwell.cli`, where the script `stepwell` is not on the path."""

from stepwell.cli.main import main

main()
