"""Take one measurement in this process, and print the figures as one line of JSON."""

import argparse
import asyncio
import inspect
import json
import os
import sys
from collections.abc import Awaitable
from pathlib import Path

os.environ.setdefault("ENABLE_INSTRUMENTATION", "false")  # Agent Framework is faster without

import crash
import subjects
from job import Job


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("system")
    parser.add_argument("case")
    parser.add_argument("subject")
    parser.add_argument("folder", type=Path)
    parser.add_argument("sizes", type=json.loads)
    parser.add_argument("--dsn")
    parser.add_argument("--prepare", action="store_true", help="only fill the store")
    parser.add_argument("--part", action="store_true", help="run the process that a crash case kills")
    parser.add_argument("--again", action="store_true", help="run the process that resumes after the kill")
    return parser.parse_args()


async def awaited(running: Awaitable[None]) -> None:
    await running


def main() -> None:
    asked = arguments()
    (subject,) = (one for one in subjects.of(asked.system) if (one.case, one.name) == (asked.case, asked.subject))
    job = Job(asked.sizes, asked.folder, asked.dsn, asked.again, sized=subject.prepare is None)
    if "late_ms" in asked.sizes and not asked.part:
        crash.measure(job, [__file__, *sys.argv[1:], "--part"])
    else:
        running = (subject.prepare if asked.prepare and subject.prepare else subject.run)(job)
        if inspect.isawaitable(running):
            asyncio.run(awaited(running))
    print(json.dumps(job.figures()))


if __name__ == "__main__":
    main()
