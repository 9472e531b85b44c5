"""The moving parts of a run: what opens it, calls its handlers, commits and emits.

What a superstep means is decided by `kernel`, which has neither tasks nor threads nor a clock.
"""

import logging

# A library stays silent until the program configures logging.
logging.getLogger("stepwell").addHandler(logging.NullHandler())
