"""Take one measurement in this process, and print the figures as one line of JSON."""

import argparse
import asyncio
import inspect
import json
import os
import sys
from pathlib import Path

os.environ.setdefault("ENABLE_INSTRUMENTATION", "false")  # Agent Framework is faster without

import killing
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
    parser.add_argument("--part", action="store_true", help="run the process that a crash case kills")
    parser.add_argument("--again", action="store_true", help="run the process that resumes after the kill")
    return parser.parse_args()


def main() -> None:
    asked = arguments()
    job = Job(asked.sizes, asked.folder, asked.dsn, asked.again)
    if "late_ms" in asked.sizes and not asked.part:
        killing.measure(job, [__file__, *sys.argv[1:], "--part"])
    else:
        (subject,) = (one for one in subjects.of(asked.system) if (one.case, one.name) == (asked.case, asked.subject))
        running = subject.run(job)
        if inspect.isawaitable(running):
            asyncio.run(_awaited(running))
    print(json.dumps(job.figures()))


async def _awaited(running: object) -> None:
    await running  # type: ignore[misc]


if __name__ == "__main__":
    main()
