"""Arguments made to attack: those of any command, by what its parameters say they take."""

from __future__ import annotations

import json

import click
from hypothesis import strategies as st

from tests.hostile.texts import HOSTILE

RUNS = ["count-1", "refund-7", "count", "refu", "refund-7@1", "count-1@0", "count-1@-1", "count-1@-99", "nobody"]
NUMBERED = ["count-1@", "@", "@1", "-1", "count-1@1@1", f"count-1@{'9' * 30}", f"count-1@{'9' * 5000}", "count-1@1.5"]
FILES = [
    "data",
    "number",
    "run.stepwell",
    "shop.py",
    "runs.db",
    "files",
    ".",
    "..",
    "missing",
    "missing/data",
    "x" * 300,
]
CODE = [
    "shop:workflow",
    "shop:asking",
    "shop:nothing",
    "shop:fails",
    "shop",
    ":",
    "shop:",
    "nothing:x",
    "shop:a..b",
    "os:path",
    ".:x",
]
STORES = [
    *(
        "sqlite:///runs.db",
        "files",
        "new",
        "sqlite:///new.db",
        "sqlite:///data",
        "data",
        "sqlite:///files",
        ".",
        "run.stepwell",
    ),
    *(
        "sqlite:///",
        "sqlite://",
        "sqlite:runs.db",
        "sqlite:///missing/runs.db",
        "sqlite:///%00",
        "mysql://x",
        "://",
        ":///",
        "sqlite:///%ff",
    ),
    *(
        "postgresql://127.0.0.1:1/runs",
        "postgresql://",
        "postgresql://127.0.0.1:1/runs?schema=%00",
        "postgresql://[",
        "postgres://a:b@c@127.0.0.1:1/x",
    ),
    *("postgresql://127.0.0.1:1/runs?nonsense=1", "postgresql://127.0.0.1:99999/runs"),
]
EDITS = [
    "about.last=1",
    "about.last={}",
    "numbers.0=[1]",
    "about=1",
    "numbers",
    "a.b.c=1",
    "=",
    "=1",
    "a",
    "about",
    "..=1",
]
WAITS = {"--wait"}  # with these a command waits for somebody else, as it should

# what a shell cannot pass on is left out, and a stroke: what is written stays in this folder
TEXT = st.text(st.characters(codec="utf-8", exclude_characters="\0/"), max_size=12) | st.sampled_from(
    ["\udcff", "a\udc80", "é" * 300, "\x1b[2J", "--", "-"]
)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=6,
).map(json.dumps)
VALUE = JSON | st.sampled_from(HOSTILE).map(json.dumps) | st.just("[" * 5000)


def words(parameter: click.Parameter) -> st.SearchStrategy[str]:
    """Something to give for a parameter: mostly of its kind, sometimes anything."""
    says = f"{parameter.name} {parameter.metavar or ''}".lower()
    kind = parameter.type
    if isinstance(kind, click.Choice):
        return _mostly(st.sampled_from([str(one) for one in kind.choices]))
    if isinstance(kind, (click.types.IntParamType, click.types.FloatParamType)):
        return _mostly(st.integers().map(str) | st.sampled_from(["0", "1", "5", "nan", "1e9", "9" * 5000, "", "٣"]))
    for sign, found in _KINDS:
        if sign in says:
            return _mostly(found)
    return TEXT | VALUE | st.sampled_from(RUNS + FILES)


def _mostly(found: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return st.integers(0, 5).flatmap(lambda choice: TEXT if choice == 5 else found)


_AT = st.sampled_from(["@", ""]).flatmap(lambda at: st.sampled_from([*FILES, "-"]).map(lambda name: at + name))
_KINDS = [
    ("module:", st.sampled_from(CODE)),
    ("store", st.sampled_from(STORES)),
    ("run", st.sampled_from(RUNS + NUMBERED)),
    ("name=value", st.sampled_from(["team=blue", "team=", "=", "team", "=blue", "a=b=c"])),
    ("request=", (VALUE | st.just("true")).map("refund-7={}".format)),
    ("request", st.sampled_from(["refund-7", "refund", "nobody", ""])),
    ("path", st.sampled_from(EDITS)),
    ("@", _AT | VALUE | st.sampled_from(["1", "2", "@number", '{"id": 1, "lines": []}'])),
    ("file", _AT),
    ("json", VALUE | _AT),
    *(
        (
            word,
            st.sampled_from(
                ["1d", "2h", "-1s", "0", "1 d", "2026-01-01", "2026-13-01", "now", "9" * 400 + "d", "1e400d"]
            ),
        )
        for word in ("since", "until", "time", "age", "for", "than", "within", "when")
    ),
]


@st.composite
def said(draw: st.DrawFn, program: click.Group, name: str) -> list[str]:
    """A command with arguments and some of its options, most of which it takes."""
    command = program.get_command(click.Context(program), name)
    assert command is not None
    line: list[str] = []
    for parameter in command.params:
        if isinstance(parameter, click.Argument):
            wanted = draw(st.integers(0, 2) if parameter.nargs == -1 else st.sampled_from([1] * 10 + [0, 2]))
            line += [draw(words(parameter)) for _ in range(wanted)]
    for parameter in command.params:
        known = isinstance(parameter, click.Option) and "--debug" not in parameter.opts
        if known and not WAITS & set(parameter.opts) and draw(st.integers(0, 2)) == 0:
            place = draw(st.integers(0, len(line)))  # also between another option and its value
            line[place:place] = _option(draw, parameter)
    return [name, *line]


def _option(draw: st.DrawFn, parameter: click.Parameter) -> list[str]:
    name = draw(st.sampled_from(parameter.opts))
    if isinstance(parameter, click.Option) and parameter.is_flag:
        return [name]
    value = draw(words(parameter))
    return [f"{name}={value}"] if name.startswith("--") and draw(st.booleans()) else [name, value]
