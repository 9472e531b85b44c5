"""`stepwell export` and `stepwell import`: runs leave one store and go on in another."""

from __future__ import annotations

import asyncio
import gzip
import json
import re
from pathlib import Path

import pytest

from stepwell import Seal, SQLiteCheckpointStorage
from tests.support.command_line import Place, Say
from tests.support.operating_runs import asking, counting

NEW = "sqlite:///new.db"


def exported(say: Say, place: Place, run: str = "refund-7", *more: str) -> Path:
    done = say("--store", place.address, "export", run, "-o", "run.stepwell", *more)
    assert (done.exit_code, done.stdout) == (0, ""), done.stderr
    return Path("run.stepwell")


def test_a_run_goes_on_in_another_store(place: Place, say: Say) -> None:
    place.fill()
    exported(say, place, "refund")  # a shortened id
    done = say("--store", NEW, "import", "run.stepwell")
    assert (done.exit_code, done.stdout) == (0, "refund-7\n"), done.stderr
    assert "imported run refund-7, 2 commits" in done.stderr

    async def answered() -> list[object]:
        async with SQLiteCheckpointStorage("new.db") as storage:
            result = await asking(storage).run(run_id="refund-7", responses={"refund-7": True})
            return list(result.get_outputs())

    assert asyncio.run(answered()) == ["tea: refunded"]


def test_an_import_goes_into_each_kind_of_store_once(place: Place, sqlite: Place, say: Say) -> None:
    if place.address == sqlite.address:
        place = Place("sqlite:///other.db", None)
    exported(say, sqlite, "count-1")
    done = say("--store", place.address, "import", "run.stepwell", "--json")
    told = json.loads(done.stdout)
    assert (told["run_id"], told["runs"], told["records"], told["schema"]) == ("count-1", ["count-1"], 4, 3)
    again = say("--store", place.address, "import", "run.stepwell")
    assert again.exit_code == 0
    assert "is already in the store, with the same content" in again.stderr
    copy = say("--store", place.address, "import", "run.stepwell", "--as", "copy")
    assert (copy.exit_code, copy.stdout) == (0, "copy\n")
    shown = say("--store", place.address, "show", "copy", "--json")
    assert json.loads(shown.stdout)["state"]["numbers"] == [1, 2, 3]


def test_another_run_of_that_id_is_never_overwritten(place: Place, say: Say, tmp_path: Path) -> None:
    place.fill()
    other = Place(NEW, SQLiteCheckpointStorage(tmp_path / "new.db"))

    async def made() -> None:
        await counting(other.storage, upto=5).run(1, run_id="count-1")
        await other.storage.close()

    asyncio.run(made())
    exported(say, other, "count-1")
    before = say("--store", place.address, "show", "count-1", "--json").stdout
    for more in ([], ["--as", "refund-7"]):
        done = say("--store", place.address, "import", "run.stepwell", *more)
        assert (done.exit_code, done.stdout) == (2, "")
        assert "already exists in this store, with other content than in the file 'run.stepwell'" in done.stderr
        assert "hint: --as NEW" in done.stderr
    assert say("--store", place.address, "show", "count-1", "--json").stdout == before


def _newer(lines: list[bytes]) -> bytes:
    return gzip.compress(b"".join([lines[0].replace(b'"version":1', b'"version":7'), *lines[1:]]))


@pytest.mark.parametrize(
    ("made", "code", "said"),
    [
        (lambda data, lines: data[:-20], 2, "is truncated"),
        (lambda data, lines: data[: len(data) // 2], 2, "is truncated"),
        (lambda data, lines: b"", 2, "is truncated"),
        (lambda data, lines: data[:50] + b"x" + data[51:], 2, "is damaged"),
        (lambda data, lines: b"PK\x03\x04 something else", 2, "was not written by export_run"),
        (lambda data, lines: gzip.compress(b"{}\n"), 2, "is not an exported run"),
        (lambda data, lines: gzip.compress(b"".join(lines[:-2] + lines[-1:])), 2, "its checksum does not match"),
        (lambda data, lines: _newer(lines), 5, "has version 7"),
    ],
)
def test_a_file_that_is_not_whole_is_refused_and_nothing_is_made(
    sqlite: Place, say: Say, made: object, code: int, said: str
) -> None:
    data = exported(say, sqlite).read_bytes()
    Path("bad.stepwell").write_bytes(made(data, gzip.decompress(data).splitlines(keepends=True)))  # type: ignore[operator]
    for store in (NEW, "new-folder"):
        done = say("--store", store, "import", "bad.stepwell")
        assert (done.exit_code, done.stdout) == (code, ""), done.stderr
        assert said in done.stderr
        assert "bad.stepwell" in done.stderr
        assert len(done.stderr.splitlines()) == 2  # a sentence and a hint
    assert not Path("new.db").exists()
    assert not Path("new-folder").exists()


def test_a_run_is_moved_through_pipes(sqlite: Place, say: Say) -> None:
    data = say("--store", sqlite.address, "export", "count-1", "-o", "-").stdout_bytes
    done = say("--store", NEW, "import", "-", input=data)
    assert (done.exit_code, done.stdout) == (0, "count-1\n"), done.stderr
    assert say("--store", sqlite.address, "export", "count-1", "-o", "-", "--json").exit_code == 2


def test_files_and_runs_that_are_not_there_are_not_found(sqlite: Place, say: Say, tmp_path: Path) -> None:
    assert say("--store", sqlite.address, "import", "nothing").exit_code == 3
    assert say("--store", sqlite.address, "import", str(tmp_path)).exit_code == 2
    assert say("--store", sqlite.address, "export", "nobody").exit_code == 3
    assert say("--store", NEW, "export", "count-1").exit_code == 3
    assert say("--store", sqlite.address, "export", "count-1", "-o", "no/such/folder").exit_code == 2
    assert not list(tmp_path.glob("*.stepwell*"))


def test_a_file_that_is_there_is_replaced_only_if_somebody_says_so(sqlite: Place, say: Say) -> None:
    Path("count-1.stepwell").write_text("mine")
    refused = say("--store", sqlite.address, "export", "count-1")
    assert refused.exit_code == 2
    assert "count-1.stepwell already exists" in refused.stderr
    assert "--yes replaces it" in refused.stderr
    assert Path("count-1.stepwell").read_text() == "mine"
    assert say("--store", sqlite.address, "export", "count-1", "--yes").exit_code == 0
    assert Path("count-1.stepwell").read_bytes()[:2] == b"\x1f\x8b"


def test_what_is_redacted_is_in_neither_file(sqlite: Place, say: Say) -> None:
    file = exported(say, sqlite, "refund-7", "--redact-all")
    assert b'"tea"' not in gzip.decompress(file.read_bytes())
    refused = say("--store", NEW, "import", "run.stepwell")
    assert refused.exit_code == 2
    assert "hint: --inspect-only" in refused.stderr
    assert say("--store", NEW, "import", "run.stepwell", "--inspect-only").exit_code == 0
    for more, there in (([], True), (["--redact-all"], False), (["--redact", "state.order"], True)):
        page = say("--store", sqlite.address, "export", "refund-7", "--html", "-o", "-", *more)
        assert page.exit_code == 0, page.stderr
        assert page.stdout.startswith("<!doctype html>")
        assert bool(re.search(r"\btea\b", page.stdout)) is there  # the question holds it, too
    for wrong in (["--redact", "nothing"], ["--redact", "state.nothing"]):
        assert say("--store", sqlite.address, "export", "count-1", *wrong).exit_code == 2
    assert not Path("count-1.stepwell").exists()


def test_a_page_shows_a_run_at_a_commit(sqlite: Place, say: Say) -> None:
    done = say("--store", sqlite.address, "export", "count-1@1", "--html", "--json")
    told = json.loads(done.stdout)
    assert (told["file"], told["number"]) == ("count-1.html", 1)
    assert "<svg" in Path("count-1.html").read_text()


def test_a_sealed_run_is_written_open_only_if_that_is_asked_for(say: Say, tmp_path: Path) -> None:
    storage = SQLiteCheckpointStorage(tmp_path / "runs.db", seal=Seal({"a": bytes(32)}, "a"))
    Place("", storage).fill()
    key = {"STEPWELL_KEYS": f"a={'A' * 43}="}
    sealed = ["--store", "sqlite:///runs.db", "export", "refund-7"]
    for more in ([], ["--html"]):
        refused = say(*sealed, *more, env=key)
        assert refused.exit_code == 2
        assert "hint: --unsealed" in refused.stderr
        assert say(*sealed, *more, "--unsealed", env=key).exit_code == 0
    assert say("--store", NEW, "import", "refund-7.stepwell", env=key).exit_code == 0
    assert b'"tea"' not in Path("new.db").read_bytes()
    assert say("--store", NEW, "show", "refund-7", env=key).exit_code == 0
    assert say("--store", NEW, "export", "refund-7", "--yes").exit_code == 5
