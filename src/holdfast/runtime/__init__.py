"""The moving parts: tasks, threads and clocks live here and nowhere below."""

import logging

logging.getLogger("holdfast").addHandler(logging.NullHandler())  # quiet unless the program asks
