"""Which functions of a library Python enters in one superstep.

The rule: a superstep lasts from the call of one handler to the call of the next. A function counts once if any thread
enters or resumes it in that time. Functions are told apart by their code objects: methods, closures and lambdas count,
comprehensions belong to the function around them. Only files of the library count, not those it depends on.
"""

import statistics
import sys
import threading
from importlib.util import find_spec
from types import CodeType, FrameType

from job import Job

WARM = 10  # supersteps that are not counted
NESTED = {"<listcomp>", "<setcomp>", "<dictcomp>", "<genexpr>"}


class Tracer:
    """Takes the place of `Laps`. Create it before the storage, so that the threads of the storage are traced too."""

    def __init__(self, package: str) -> None:
        spec = find_spec(package)
        assert spec is not None
        self._folders = tuple(f"{folder}/" for folder in spec.submodule_search_locations or ())
        self._supersteps: list[set[CodeType]] = []
        threading.setprofile(self._see)
        sys.setprofile(self._see)

    def mark(self, run: object = None) -> None:
        self._supersteps.append(set())

    def _see(self, frame: FrameType, event: str, argument: object) -> None:
        code = frame.f_code
        if event == "call" and self._supersteps and code.co_filename.startswith(self._folders):
            self._supersteps[-1].add(code)

    def note(self, job: Job) -> None:
        """Note the medians, and list the functions of a median superstep on standard error."""
        sys.setprofile(None)
        counted = [_without_nested(entered) for entered in self._supersteps[WARM:-1]]
        counted.sort(key=len)
        job.notes["functions"] = statistics.median(map(len, counted))
        job.notes["files"] = statistics.median(len({code.co_filename for code in entered}) for entered in counted)
        for code in sorted(counted[len(counted) // 2], key=lambda code: (code.co_filename, code.co_firstlineno)):
            print(f"{code.co_filename}:{code.co_firstlineno} {code.co_name}", file=sys.stderr)


def _without_nested(entered: set[CodeType]) -> set[CodeType]:
    return {code for code in entered if code.co_name not in NESTED}
