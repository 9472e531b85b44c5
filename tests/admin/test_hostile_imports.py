"""Exported runs that somebody has changed, with a sum that fits: refused in words, and nothing is written.

They are also written with other white space, which says the same, and made to fill the memory.
"""

from __future__ import annotations

import asyncio
import gzip
import json
import random
import string
import subprocess
import sys
import zlib
from collections.abc import Callable, Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from stepwell import (
    CheckpointCorrupt,
    InMemoryCheckpointStorage,
    PostgresCheckpointStorage,
    SQLiteCheckpointStorage,
    StoreUnavailable,
)
from stepwell.admin import ImportRefused, examine, export_run, import_run
from tests.support.operating_runs import Order, asking, counting
from tests.support.postgres_server import dsn, fresh_schema

Lines = list[dict[str, Any]]
Change = Callable[[Lines], object]


def lines_of(data: bytes) -> Lines:
    return [json.loads(line) for line in gzip.decompress(data).splitlines()][:-1]


def packed(lines: Lines, dumps: Callable[[Any], str] = json.dumps) -> bytes:
    """A file of these lines, with a sum that fits."""
    return packed_texts([dumps(line).encode() for line in lines])


def packed_texts(texts: list[bytes]) -> bytes:
    end = {"line": "end", "lines": len(texts), "sum": sha256(b"".join(text + b"\n" for text in texts)).hexdigest()}
    return gzip.compress(b"\n".join([*texts, json.dumps(end).encode()]) + b"\n", 1)


async def exported() -> bytes:
    """A run that waits, with a letter, something of a superstep under way, and a long text that changes a little."""
    storage = InMemoryCheckpointStorage()
    await asking(storage).run(Order(7, ["tea " * 600]), run_id="r", tags={"team": "red"})
    letter = b'{"kind":"plain","format":1,"request_id":"refund-7","value":true}'
    (asked,) = await storage._store.requests()
    await storage._store.send("r", f"answer/0/0/{asked.at}/refund-7", letter)
    place = json.loads((await storage._store.read("r"))[-1].body)["place"]
    note = b'{"format":1,"due":"","value":"a receipt"}'
    await storage._store.write_log("r", place, f"{place}.0/step/pay/0", note)
    return await export_run(storage, "r")


def of_kind(lines: Lines, kind: str) -> dict[str, Any]:
    return next(line for line in lines if line.get("line") == kind)


def last(lines: Lines) -> dict[str, Any]:
    return [line for line in lines if line.get("line") == "record"][-1]


def first(lines: Lines) -> dict[str, Any]:
    return of_kind(lines, "record")


def renamed(lines: Lines, name: str) -> None:
    lines[0]["run_id"] = of_kind(lines, "run")["run_id"] = name
    for line in lines:
        if line.get("line") == "record":
            line["entry"]["run_id"] = name
            if "run" in line["body"]:
                line["body"]["run"]["run_id"] = name


def asks(lines: Lines, id: str) -> None:
    body = last(lines)["body"]
    body["asked"][0]["id"] = body["done"][0]["asked"][0] = id


HUGE = 2**63
CHANGES: dict[str, tuple[Change, str]] = {
    "number beyond 64 bits": (
        lambda ls: last(ls)["entry"].update(number=HUGE),
        "number .* is above 9223372036854775807",
    ),
    "number below 0": (lambda ls: first(ls)["entry"].update(number=-5), "number .* is -5, below 0"),
    "iteration beyond 64 bits": (lambda ls: last(ls)["entry"].update(iteration=HUGE), "iteration .* is above"),
    "iteration below 0": (lambda ls: last(ls)["entry"].update(iteration=-HUGE * 9), "iteration .* is below 0"),
    "head beyond 64 bits": (lambda ls: of_kind(ls, "run").update(head=HUGE), "the head of run 'r' is above"),
    "head below 0": (lambda ls: of_kind(ls, "run").update(head=-1), "the head of run 'r' is -1, below 0"),
    "place below 0": (lambda ls: of_kind(ls, "run").update(place=-1), "the place of run 'r' is -1, below 0"),
    "place beyond 64 bits": (lambda ls: of_kind(ls, "run").update(place=HUGE), "the place of run 'r' is above"),
    "another place": (lambda ls: of_kind(ls, "run").update(place=77), "has place 77, but its head has place"),
    "place in a body": (lambda ls: last(ls)["body"].update(place=HUGE), "<= 9223372036854775807 - at `\\$.place`"),
    "place below 0 in a body": (lambda ls: last(ls)["body"].update(place=-1), ">= 0 - at"),
    "time of a call": (
        lambda ls: last(ls)["body"]["done"][0].update(time={"began": "noon", "microseconds": 1}),
        "a call of 'desk' is not a time",
    ),
    "time of a call without a zone": (
        lambda ls: last(ls)["body"]["done"][0].update(time={"began": "2026-11-18T10:00:00", "microseconds": 1}),
        "with a time zone",
    ),
    "duration of a call": (
        lambda ls: last(ls)["body"]["done"][0].update(time={"began": "2026-11-18T10:00:00Z", "microseconds": -1}),
        "took -1 microseconds",
    ),
    "restored in a body": (lambda ls: last(ls)["body"].update(restored=HUGE), "<= 9223372036854775807"),
    "epoch": (lambda ls: first(ls)["body"]["run"].update(epoch=HUGE), "<= 9223372036854775807"),
    "epoch below 0": (lambda ls: first(ls)["body"]["run"].update(epoch=-1), ">= 0 - at"),
    "parent": (lambda ls: first(ls)["body"]["run"].update(parent_number=-1), ">= 0 - at"),
    "no time": (lambda ls: last(ls)["entry"].update(at="yesterday"), "is not a time in ISO 8601"),
    "time without a zone": (lambda ls: last(ls)["entry"].update(at="2026-01-01T00:00:00"), "with a time zone"),
    "a time that is long": (lambda ls: last(ls)["entry"].update(at="9" * 100_000), "is not a time"),
    "wake": (lambda ls: last(ls)["body"].update(wake="soon"), "the wake-up time"),
    "when it was asked": (lambda ls: last(ls)["body"]["asked"][0].update(at="then"), "request 'refund-7'"),
    "deadline": (lambda ls: last(ls)["body"]["asked"][0].update(deadline="2026"), "request 'refund-7'"),
    "run id": (lambda ls: renamed(ls, "x" * 10_001), "has 10,001 characters, and the limit is 10,000"),
    "empty run id": (lambda ls: renamed(ls, ""), "is empty"),
    "checkpoint id": (lambda ls: last(ls)["entry"].update(checkpoint_id="x" * 10_001), "the limit is 10,000"),
    "empty checkpoint id": (lambda ls: last(ls)["entry"].update(checkpoint_id=""), "checkpoint_id .* is empty"),
    "workflow": (lambda ls: first(ls)["entry"].update(workflow="x" * 10_001), "workflow .* the limit is 10,000"),
    "question": (lambda ls: asks(ls, "x" * 10_001), "the id of a request .* the limit is 10,000"),
    "tag": (lambda ls: first(ls)["body"]["run"].update(tags={"x" * 10_001: ""}), "a tag .* the limit is 10,000"),
    "tag value": (lambda ls: first(ls)["body"]["run"].update(tags={"x": "y" * 10_001}), "the tag 'x' .* limit"),
    "caller": (lambda ls: first(ls)["body"]["run"].update(caller="y" * 10_001), "its caller .* the limit is 10,000"),
    "memory key": (lambda ls: of_kind(ls, "log").update(key="1.0/" + "x" * 11_000), "has 11,004 characters"),
    "letter key": (lambda ls: of_kind(ls, "signal").update(key="x" * 11_001), "has 11,001 characters"),
    "letter twice": (lambda ls: ls.append(of_kind(ls, "signal")), "it contains .* twice"),
    "memory twice": (lambda ls: ls.append(of_kind(ls, "log")), "it contains .* twice"),
    "a note without a time": (lambda ls: of_kind(ls, "log")["body"].update(due="soon"), "in the superstep log"),
    "only partly": (
        lambda ls: of_kind(ls, "signal").update(key="import/this run is only partly here: import it again"),
        "in it is incomplete",
    ),
    "a change of nothing": (
        lambda ls: last(ls)["body"].update(state={"splice": {"order": {"start": 10**6, "tail": 5, "text": "x"}}}),
        "it changes text that does not exist",
    ),
    "a change that leaves no JSON": (
        lambda ls: last(ls)["body"].update(
            state={"set": {"s": "x" * 50}, "splice": {"order": {"start": 0, "tail": 0, "text": "{"}}}
        ),
        r"state\['order'\] of run 'r'",
    ),
}


@pytest.mark.parametrize("case", CHANGES)
async def test_what_no_store_could_hold_is_refused_before_anything_is_written(case: str, tmp_path: Path) -> None:
    change, words = CHANGES[case]
    lines = lines_of(await exported())
    before = packed(lines)
    if "change" in case:  # there must be something that it changes
        moved_to_frame(lines)
    change(lines)
    assert packed(lines) != before
    async with SQLiteCheckpointStorage(tmp_path / "runs.db") as storage:
        with pytest.raises(CheckpointCorrupt, match=words):
            await import_run(storage, packed(lines))
    assert list(tmp_path.iterdir()) == []  # the store was not even asked


def moved_to_frame(lines: Lines) -> None:
    """What the run holds is said by its first record, so that its last can change it."""
    first(lines)["body"]["state"] = {"set": {"order": "x" * 2000}}


@pytest.mark.process
async def test_what_only_one_store_cannot_hold_leaves_nothing_there() -> None:
    lines = lines_of(await exported())
    value = "".join(random.Random(1).choices(string.ascii_letters, k=9_900))  # an index of PostgreSQL takes 8191 bytes
    last(lines)["entry"]["checkpoint_id"] = value
    with fresh_schema() as schema:
        async with PostgresCheckpointStorage(dsn(), schema=schema) as storage:
            with pytest.raises(StoreUnavailable, match="maximum size"):
                await import_run(storage, packed(lines))
            assert await storage.list_runs() == []
            assert (await import_run(storage, await exported())).runs == ("r",)
            assert await asking(storage).run(run_id="r")
    assert (await import_run(InMemoryCheckpointStorage(), packed(lines))).runs == ("r",)


# ------------------------------------------------------------------------------------------------ white space


SPACED: dict[str, Callable[[Any], str]] = {
    "as Python writes it": json.dumps,
    "tabs": lambda line: json.dumps(line, separators=("\t,\t", "\t:\t")),
    "much": lambda line: json.dumps(line, separators=("   ,\r   ", "   :   ")).replace("{", " { ").replace("[", " [ "),
}


async def test_white_space_changes_nothing(everywhere: Any) -> None:
    data = await exported()
    storage = everywhere()
    spaced = [packed(lines_of(data), dumps) for dumps in SPACED.values()]
    assert (await import_run(storage, spaced[-1])).runs == ("r",)
    assert gzip.decompress(await export_run(storage, "r")) == gzip.decompress(data)
    assert [finding async for finding in examine(storage) if not hasattr(finding, "runs")] == []
    for same in (*spaced, data):
        assert (await import_run(storage, same)).runs == ()  # it is the very same
    assert [one.request_id for one in await storage.pending_requests()] == ["refund-7"]
    result = await asking(storage).run(run_id="r")
    assert result.get_outputs()[0].endswith("refunded")
    await storage.close()


async def test_text_that_is_not_utf_8_is_refused_wherever_it_is() -> None:
    texts = gzip.decompress(await exported()).splitlines()[:-1]
    tried = 0
    for part in (b"refunds", b"tea ", b"a receipt", b"answer/0"):
        for n in [n for n, text in enumerate(texts) if part in text]:
            changed = [*texts[:n], texts[n].replace(part, part[:1] + b"\xff" + part[1:], 1), *texts[n + 1 :]]
            storage = InMemoryCheckpointStorage()
            with pytest.raises(CheckpointCorrupt, match=r"line \d+ of the exported run is damaged: 'utf-8'"):
                await import_run(storage, packed_texts(changed))
            assert await storage.list_runs() == []
            tried += 1
    assert tried > 5


# ---------------------------------------------------------------------------------------------------- memory


MIB = 2**20
MEASURED = """
import asyncio, resource, sys
from stepwell import InMemoryCheckpointStorage
from stepwell.admin import ImportRefused, import_from

def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024

async def measure():
    for path in sys.argv[2:]:
        storage, before = InMemoryCheckpointStorage(), peak()
        try:
            await import_from(path, storage, max_memory=int(sys.argv[1]))
            said = "imported"
        except ImportRefused as refused:
            said = f"{refused.reason} {refused}"
        assert said != "imported" and not await storage.list_runs(), said
        print(peak() - before, said, flush=True)

asyncio.run(measure())
"""


def with_raw(lines: Lines, raw: bytes, *path: str) -> list[bytes]:
    """The lines, with something of any size in the last record."""
    part = last(lines)["body"]
    for step in path[:-1]:
        part = part.setdefault(step, {})
    part[path[-1]] = "@raw"
    return [json.dumps(line).encode().replace(b'"@raw"', raw) for line in lines]


def many(item: bytes, size: int) -> bytes:
    return b"[" + (item + b",") * (size // (len(item) + 1)) + item + b"]"


def bombs(lines: Callable[[], Lines], size: int) -> Iterator[list[bytes]]:
    """Files of that size whose objects would take up to a hundred times as much."""
    yield with_raw(lines(), b'"' + b"a" * 4 * size + b'"', "state", "set", "x")
    yield with_raw(lines(), b'{"k":{"s":' + many(b"1", size) + b"}}", "held")
    yield with_raw(lines(), many(b"1", size), "state", "append", "x")
    yield with_raw(lines(), many(b'"a"', size), "warnings")
    yield with_raw(lines(), many(b'{"id":"","source":null,"payload":1}', size * 4), "messages")
    yield with_raw(lines(), many(b'{"delivery":"","executor":""}', size * 4), "done")
    yield with_raw(lines(), many(b"[]", size), "metadata", "x")
    header = lines()
    header[0]["missing"] = "@raw"
    yield [json.dumps(line).encode().replace(b'"@raw"', many(b'"a"', size)) for line in header]


@pytest.mark.process
def test_a_small_file_cannot_fill_the_memory(tmp_path: Path) -> None:
    data = asyncio.run(exported())
    paths = []
    for n, texts in enumerate(bombs(lambda: lines_of(data), 4 * MIB)):
        paths.append(tmp_path / f"{n}.stepwell")
        paths[-1].write_bytes(packed_texts(texts))
        assert paths[-1].stat().st_size < 300_000
    paths.append(tmp_path / "many.stepwell")
    paths[-1].write_bytes(growing(lines_of(data), 4 * MIB, 12))
    assert paths[-1].stat().st_size < 4_000_000
    limit = 64 * MIB
    done = subprocess.run(
        [sys.executable, "-c", MEASURED, str(limit), *map(str, paths)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    told = done.stdout.splitlines()
    assert len(told) == len(paths)
    assert [line for line in told if "large" not in line or "the limit of 64 MiB" not in line] == []
    grown = [int(line.split()[0]) for line in told]
    assert sum(grown) < 2 * limit, grown  # without a limit it would be gigabytes


def growing(lines: Lines, size: int, times: int) -> bytes:
    """Each record adds a value: none of them is large, and together they are."""
    snapshot = first(lines)
    of_kind(lines, "run").update(head=times)
    lines[:] = [line for line in lines if line.get("line") not in ("record", "log", "signal")]
    snapshot["entry"].update(outputs=False)
    lines.append(snapshot)
    packer = zlib.compressobj(1, wbits=31)
    digest, data, count = sha256(), b"", 0
    for n in range(times + 1):
        text = b""
        if n == 0:
            text = b"".join(json.dumps(line).encode() + b"\n" for line in lines)
            count += len(lines)
        else:
            delta = {
                key: snapshot["body"][key] for key in ("format", "kind", "status", "iteration", "since_input", "place")
            }
            entry = {**snapshot["entry"], "number": n, "checkpoint_id": f"c{n}", "is_snapshot": False}
            delta["state"] = {"set": {f"key {n}": "x" * size}}
            text = json.dumps({"line": "record", "entry": entry, "body": delta}).encode() + b"\n"
            count += 1
        digest.update(text)
        data += packer.compress(text)
    end = {"line": "end", "lines": count, "sum": digest.hexdigest()}
    return data + packer.compress(json.dumps(end).encode() + b"\n") + packer.flush()


@pytest.mark.long
async def test_a_file_of_300_kilobytes_is_refused_by_the_limit_that_nobody_changed() -> None:
    data = await exported()
    bomb = packed_texts(with_raw(lines_of(data), b'"' + b"a" * 160 * MIB + b'"', "state", "set", "x"))
    assert len(bomb) < 1_000_000
    storage = InMemoryCheckpointStorage()
    with pytest.raises(ImportRefused, match=r"line \d+ of the exported run needs more memory .* 1,024 MiB") as refused:
        await import_run(storage, bomb)
    assert (refused.value.reason, refused.value.run_id) == ("large", "r")
    assert await storage.list_runs() == []


async def test_prose_is_no_bomb_and_whoever_trusts_a_file_may_raise_the_limit() -> None:
    data = await exported()
    prose = json.dumps("Well, yes, no, perhaps, or not, " * 100_000).encode()
    texts = with_raw(lines_of(data), prose, "state", "set", "x")
    assert (await import_run(InMemoryCheckpointStorage(), packed_texts(texts), max_memory=32 * MIB)).runs == ("r",)
    numbers = packed_texts(with_raw(lines_of(data), many(b"1", MIB), "state", "set", "x"))
    with pytest.raises(ImportRefused, match="raise max_memory"):
        await import_run(InMemoryCheckpointStorage(), numbers, max_memory=32 * MIB)
    for limit in (256 * MIB, None):
        assert (await import_run(InMemoryCheckpointStorage(), numbers, max_memory=limit)).runs == ("r",)


async def test_what_is_nested_too_deep_is_refused() -> None:
    data = await exported()
    for path in (("state", "set", "x"), ("metadata", "x"), ("held",)):
        deep = with_raw(lines_of(data), b"[" * 100_000 + b"]" * 100_000, *path)
        storage = InMemoryCheckpointStorage()
        with pytest.raises(CheckpointCorrupt, match=r"nested too deep|is damaged"):
            await import_run(storage, packed_texts(deep))
        assert await storage.list_runs() == []


async def test_a_long_run_is_no_bomb() -> None:
    source, storage = InMemoryCheckpointStorage(), InMemoryCheckpointStorage()
    await counting(source, upto=60).run(1, run_id="long")
    assert (await import_run(storage, await export_run(source, "long"), max_memory=MIB)).records == 61
    await storage.close()
