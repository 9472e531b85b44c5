"""What a disk may hold after a power failure, at each moment of a recording."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from .disk import Change, Chosen, Disk, File, Image, Naming
from .recording import Call

CHANGING = {"open", "write", "resize", "resize by path", "rename", "link", "remove", "make folder", "set time"}


@dataclass(frozen=True)
class Failure:
    """The power failed when so many calls were made, and this is what it left."""

    calls: int
    left: str
    image: Image
    first: bool = False  # to be tried whatever else is


Failures = Callable[[Sequence[Call], Disk], Iterator[Failure]]


def prefixes(calls: Sequence[Call], disk: Disk) -> Iterator[Failure]:
    """After each call that changes something: all up to there is on the disk, whether it was synced or not."""
    before: Failure | None = None
    for at, call in enumerate(calls):
        if call.what in CHANGING and before is not None:
            # not earlier: what was acknowledged since the last change has to be there as well
            yield replace(before, calls=at)
        if call.what == "mark" and before is not None:
            before = replace(before, first=True)
        disk.take(at, call)
        if call.what in CHANGING:
            before = Failure(at, f"all up to call {at} ({call})", disk.image())
    if before is not None:
        yield replace(before, calls=len(calls))


def losses(calls: Sequence[Call], disk: Disk) -> Iterator[Failure]:
    """Before each sync, when most is at stake: some of what was not synced is lost, in all the ways below."""
    for at, call in enumerate(calls):
        if call.what == "sync":
            yield from _losses_at(at, disk)
        disk.take(at, call)
    yield from _losses_at(len(calls), disk)


def losses_everywhere(calls: Sequence[Call], disk: Disk) -> Iterator[Failure]:
    """The same before each call that changes something."""
    for at, call in enumerate(calls):
        if call.what in CHANGING or call.what == "sync":
            yield from _losses_at(at, disk)
        disk.take(at, call)
    yield from _losses_at(len(calls), disk)


def _only(file: File) -> Chosen:
    """The changes of this file, and of no other."""
    return lambda one: one.changes if one is file else ()


def _instead(file: File, changes: Sequence[Change]) -> Chosen:
    """These changes of this file, and all changes of the others."""
    return lambda one: changes if one is file else one.changes


def _losses_at(at: int, disk: Disk) -> Iterator[Failure]:
    names, files = disk.namings, disk.unsafe_files()

    def left(what: str, namings: Sequence[Naming], chosen: Chosen, *, first: bool = False) -> Failure:
        return Failure(at, f"before call {at}, {what}", disk.image(namings, chosen), first)

    def everything(file: File) -> Sequence[Change]:
        return file.changes

    def nothing(file: File) -> Sequence[Change]:
        return ()

    yield left("nothing that was not synced", [], nothing, first=True)
    yield left("every name and no content that was not synced", names, nothing)
    yield left("no name and all content that was not synced", [], everything)
    yield left("every name, and zeros for content", names, lambda file: [c.zeroed() for c in file.changes])
    for naming in names:
        others = [one for one in names if one is not naming]
        yield left(f"the names of call {naming.at} and no others", [naming], everything)
        yield left(f"all but the names of call {naming.at}", others, everything)
    for path, file in files.items():
        yield left(f"all but the content of {path}", names, _instead(file, ()))
        yield left(f"no content but that of {path}", names, _only(file))
    if files:
        last = max(files.values(), key=lambda file: file.changes[-1].at)
        *early, end = last.changes
        for what, found in (
            ("half of the last write", [*early, end.cut()]),
            ("all but the last write", early),
            ("of the last file nothing but the last write", [end]),
            ("of the last file nothing but half of the last write", [end.cut()]),
        ):
            yield left(what, names, _instead(last, found))


def chosen(failures: Callable[[], Iterator[Failure]], most: int | None) -> Iterator[Failure]:
    """Of failures that leave the same the last one, of which most is asked. At most so many: those that are to be
    tried first, and of the others as many as fit, evenly spread.

    They are gone through twice, so that not all of them are kept in mind at once.
    """
    last: dict[bytes, int] = {}
    foremost: set[bytes] = set()
    for number, failure in enumerate(failures()):
        key = failure.image.key()
        last[key] = number
        if failure.first:
            foremost.add(key)
    first = _spread(sorted(last[key] for key in foremost), most)
    others = _spread(sorted(set(last.values()) - set(first)), None if most is None else most - len(first))
    wanted = {*first, *others}
    yield from (failure for number, failure in enumerate(failures()) if number in wanted)


def _spread(numbers: list[int], most: int | None) -> list[int]:
    if most is None or len(numbers) <= most:
        return numbers
    return [numbers[n * len(numbers) // most] for n in range(most)]
