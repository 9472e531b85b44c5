"""The moving parts of a run: tasks, threads and clocks live here and nowhere below."""

import logging

# A library stays silent until the program configures logging.
logging.getLogger("stepwell").addHandler(logging.NullHandler())
