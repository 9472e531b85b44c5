"""Conversations in files: torn lines, several writers, hostile names, and a loop that is not held up."""

import asyncio
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from stepwell import CheckpointCorrupt, Message
from stepwell.declarative import InMemoryTranscriptStore, JsonTranscriptStore
from stepwell.declarative.transcripts import Threads, agent_thread, thread_of
from stepwell.storage.durable_files import lock_file, safe_name

APPENDS = """
import asyncio, sys
from stepwell import Message
from stepwell.declarative import JsonTranscriptStore

async def main(root, who, count):
    store = JsonTranscriptStore(root)
    for n in range(count):
        await store.append("t", f"{who} {n}", [Message("user", f"{who} {n} " + "x" * 5000)])
        print(n, flush=True)

asyncio.run(main(sys.argv[1], sys.argv[2], int(sys.argv[3])))
"""


def said(*texts: str) -> list[Message]:
    return [Message("user", text) for text in texts]


def appender(root: Path, who: str, count: int) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", APPENDS, str(root), who, str(count)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


@pytest.fixture(params=["memory", "files"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> InMemoryTranscriptStore | JsonTranscriptStore:
    return InMemoryTranscriptStore() if request.param == "memory" else JsonTranscriptStore(tmp_path)


async def test_what_is_added_twice_under_one_key_is_there_once(
    store: InMemoryTranscriptStore | JsonTranscriptStore,
) -> None:
    for _ in range(2):
        await store.append("t", "1", said("a", "b"))
    await store.append("t", "2", [])
    assert [message.text for message in await store.read("t")] == ["a", "b"]
    assert await store.read("other") == []
    assert await store.threads() == ["t"]


async def test_a_line_that_was_never_finished_is_not_there_and_the_next_takes_its_place(tmp_path: Path) -> None:
    store = JsonTranscriptStore(tmp_path)
    await store.append("t", "1", said("a"))
    (path,) = tmp_path.iterdir()
    whole = path.read_bytes()
    for cut in range(1, len(whole)):
        path.write_bytes(whole + whole[:cut])
        assert [message.text for message in await store.read("t")] == ["a"]
    await store.append("t", "2", said("b"))
    assert [message.text for message in await store.read("t")] == ["a", "b"]


async def test_a_line_that_is_damaged_is_named(tmp_path: Path) -> None:
    store = JsonTranscriptStore(tmp_path)
    await store.append("t", "1", said("a"))
    (path,) = tmp_path.iterdir()
    for damage in (b"{}\n", b"\xff\xfe\n", b'{"format": "x"}\n'):
        path.write_bytes(damage)
        with pytest.raises(CheckpointCorrupt, match=r"line 1 of .* is damaged"):
            await store.read("t")
        with pytest.raises(CheckpointCorrupt, match="is damaged"):
            await store.append("t", "2", said("b"))
        assert path.read_bytes() == damage


async def test_a_newer_format_is_refused_even_if_it_looks_the_same(tmp_path: Path) -> None:
    store = JsonTranscriptStore(tmp_path)
    await store.append("t", "1", said("a"))
    (path,) = tmp_path.iterdir()
    line = json.loads(path.read_text())
    path.write_text(json.dumps({**line, "format": 2}) + "\n")
    with pytest.raises(CheckpointCorrupt, match="newer format than 1"):
        await store.read("t")


@pytest.mark.process
async def test_two_processes_add_to_one_thread(tmp_path: Path) -> None:
    writers = [appender(tmp_path, who, 40) for who in ("a", "b")]
    assert [writer.wait(timeout=60) for writer in writers] == [0, 0]
    for writer in writers:
        assert writer.stdout is not None
        writer.stdout.close()
    texts = [message.text.split(" x")[0] for message in await JsonTranscriptStore(tmp_path).read("t")]
    for who in ("a", "b"):
        assert [text for text in texts if text[0] == who] == [f"{who} {n}" for n in range(40)]


@pytest.mark.process
async def test_whatever_a_killed_writer_was_told_is_there(tmp_path: Path) -> None:
    store, confirmed = JsonTranscriptStore(tmp_path), 0
    for round in range(5):
        writer = appender(tmp_path, f"r{round}", 10_000)
        assert writer.stdout is not None
        last = -1
        for line in writer.stdout:
            last = int(line)
            if last >= 7 + round:
                os.kill(writer.pid, signal.SIGKILL)
                break
        rest = writer.stdout.read().split()
        confirmed += 1 + int(rest[-1]) if rest else 1 + last
        writer.stdout.close()
        writer.wait()
        assert len(await store.read("t")) >= confirmed
        await store.append("t", f"after {round}", said("whole"))
        confirmed += 1
    assert [message.text for message in await store.read("t")].count("whole") == 5


NAMES = [
    "a/b",
    "../up",
    "..",
    "",
    ".",
    "A",
    "a",
    "x" * 5000,
    "ü",
    "a\nb",
    "nul\0",
    "a.b",
    safe_name("a/b"),
    "%2F",
    "a%2Fb",
]


async def test_threads_may_be_called_anything_and_are_told_apart(tmp_path: Path) -> None:
    store = JsonTranscriptStore(tmp_path / "in")
    for name in NAMES:
        await store.append(name, "1", said(name or "empty"))
    assert {path.parent for path in tmp_path.rglob("*.jsonl")} == {tmp_path / "in"}
    assert sorted(await store.threads()) == sorted(NAMES)
    for name in NAMES:
        assert [message.text for message in await store.read(name)] == [name or "empty"]


def test_no_two_sessions_and_agents_share_a_thread() -> None:
    names = ["s", "s/a", "a", "a/b", "b", "%2F", "s%2Fa", "", "/"]
    threads = [*(thread_of(one) for one in names), *(agent_thread(one, other) for one in names for other in names)]
    assert len({*threads}) == len(threads)


async def test_the_event_loop_goes_on_while_another_writer_holds_the_file(tmp_path: Path) -> None:
    store = JsonTranscriptStore(tmp_path)
    await store.append("t", "1", said("a"))
    with lock_file(store._path("t")):
        waiting = asyncio.ensure_future(store.append("t", "2", said("b")))
        for _ in range(20):
            await asyncio.sleep(0.001)
        assert not waiting.done()
    await waiting
    assert len(await store.read("t")) == 2


async def test_a_fork_is_made_once_and_keeps_what_it_began_with() -> None:
    store = InMemoryTranscriptStore()
    threads = Threads("fork", store)
    await store.append("s", "1", said("root"))
    await threads.append("s", "a", "run 1", said("one"))
    await store.append("s", "2", said("later"))
    await threads.append("s", "a", "run 1", said("one"))
    await threads.append("s", "b", "run 1", said("two"))
    assert [message.text for message in await threads.read("s", "a")] == ["root", "one"]
    assert [message.text for message in await threads.read("s", "b")] == ["root", "later", "two"]
