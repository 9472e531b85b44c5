"""The moving parts: tasks, threads and clocks live here and nowhere below."""

import logging

logging.getLogger("stepwell").addHandler(logging.NullHandler())  # quiet unless the program asks
