"""Measure an earlier commit and this version side by side: `python benchmarks/versions.py --before COMMIT`.

Each measurement runs in its own process, with the benchmarks and the source of its version. The repeats are
interleaved in shuffled order. The package may have another name in the earlier commit.
"""

import argparse
import io
import json
import os
import random
import statistics
import subprocess
import sys
import tarfile
import tempfile
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path

import postgres
import subjects
from cases import CASES
from job import Subject

ROOT = Path(__file__).resolve().parent.parent


@dataclass(frozen=True, slots=True)
class Version:
    tree: Path

    @property
    def package(self) -> str:
        (found,) = (path.parent.name for path in (self.tree / "src").glob("*/__init__.py"))
        return found

    def measure(self, subject: Subject, size: str, folder: Path | None, server: str | None) -> float:
        """Return the seconds that a subject takes."""
        name = subject.name.replace("stepwell", self.package, 1)
        sizes = json.dumps(dict(CASES[subject.case].sizes(size, subject.name)))
        database = postgres.fresh_database(server or "") if subject.postgres else nullcontext(None)
        env = {**os.environ, "PYTHONPATH": str(self.tree / "src")}
        with tempfile.TemporaryDirectory(dir=folder, prefix="bench-") as work, database as dsn:
            command = [sys.executable, str(self.tree / "benchmarks" / "one.py"), self.package, subject.case, name]
            command += [work, sizes, *(["--dsn", dsn] if dsn else [])]
            done = subprocess.run(command, capture_output=True, text=True, env=env, check=False)
        if done.returncode:
            raise SystemExit(f"{self.tree} {subject.case} {name} failed:\n{done.stderr[-2000:]}")
        return float(json.loads(done.stdout.splitlines()[-1])["seconds"])


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--before", required=True, help="the commit to compare with, or a checkout of it")
    parser.add_argument("--cases", default="chain,many,fanout")
    parser.add_argument("--stores", default="none,memory,files,sqlite,postgres")
    parser.add_argument("--repeats", type=int, default=9)
    parser.add_argument("--size", choices=["tiny", "quick", "full"], default="quick")
    parser.add_argument("--folder", type=Path, help="where to create files; must be a disk, not memory")
    return parser.parse_args()


def checked_out(before: str, folder: str) -> Path:
    """Return the source tree of a version: the given folder, or the commit unpacked."""
    if Path(before).is_dir():
        return Path(before).resolve()
    archive = subprocess.run(["git", "archive", before], cwd=ROOT, capture_output=True, check=True).stdout
    with tarfile.open(fileobj=io.BytesIO(archive)) as packed:
        packed.extractall(folder, filter="data")
    return Path(folder)


def main() -> int:
    asked = arguments()
    names = {"stepwell" if store == "none" else f"stepwell-{store}" for store in asked.stores.split(",")}
    found = [one for one in subjects.of("stepwell") if one.case in asked.cases.split(",") and one.name in names]
    with tempfile.TemporaryDirectory() as folder:
        versions = {"before": Version(checked_out(asked.before, folder)), "now": Version(ROOT)}
        taken: dict[tuple[str, str, str], list[float]] = {}
        with postgres.server() if any(one.postgres for one in found) else nullcontext(None) as server:
            for repeat in range(asked.repeats):
                pairs = [(one, which) for one in found for which in versions]
                for one, which in random.Random(repeat).sample(pairs, len(pairs)):
                    seconds = versions[which].measure(one, asked.size, asked.folder, server)
                    taken.setdefault((one.case, one.name, which), []).append(seconds)
                print(f"{repeat + 1}/{asked.repeats}", file=sys.stderr, flush=True)
    print(f"| Case | Storage | {asked.before[:7]}, s | now, s | now : before |\n|---|---|--:|--:|--:|")
    for one in found:
        before, now = (statistics.median(taken[one.case, one.name, which]) for which in versions)
        print(f"| {one.case} | {one.name} | {before:.3f} | {now:.3f} | {now / before:.2f} |")
    return 0


if __name__ == "__main__":
    sys.exit(main())
