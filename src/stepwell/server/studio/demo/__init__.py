"""A store with runs worth looking at, made by `stepwell studio --demo`."""

import importlib.util
import sys
from pathlib import Path

_NAME = "stepwell_demo"

# Under a name of its own, as a user's program: what belongs to Stepwell cannot be stored.
_spec = importlib.util.spec_from_file_location(_NAME, Path(__file__).with_name("program.py"))
assert _spec is not None
assert _spec.loader is not None
program = importlib.util.module_from_spec(_spec)
sys.modules[_NAME] = program
_spec.loader.exec_module(program)
