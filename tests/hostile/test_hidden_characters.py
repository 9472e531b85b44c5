"""Characters that a terminal, a browser or an editor obeys: no command and no picture prints them as they are."""

from __future__ import annotations

import asyncio
import json
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from stepwell import Executor, SQLiteCheckpointStorage, Workflow, WorkflowBuilder, WorkflowContext, handler
from stepwell.admin import export_to, report_run
from stepwell.cli.app import COMMANDS, Program, stepwell
from stepwell.declarative import AgentWorkflow, AgentWorkflowInstance, equals
from stepwell.model.visible_text import visible, visible_json
from stepwell.viz import draw
from stepwell.viz.workflow_viz import WorkflowViz

HIDDEN = "".join(
    [
        *map(chr, [*range(0x20), *range(0x7F, 0xA0)]),  # C0 and C1
        "\u061c\u200e\u200f",  # marks of direction
        "\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069",  # what turns text around
        "\u2028\u2029",  # separators of lines and paragraphs
        "\U000e0041",  # a tag, which nobody sees
    ]
)
EVIL = f"a{HIDDEN}b"
LAYOUT = "\n\r\t"  # that of the output itself
FORBIDDEN = re.compile(f"[{re.escape(''.join(c for c in HIDDEN if c not in LAYOUT))}]")

SHOP = f"""
from stepwell import Executor, WorkflowBuilder, WorkflowContext, handler, response_handler

EVIL = {EVIL!r}

class Clerk(Executor):
    @handler
    async def order(self, text: str, ctx: WorkflowContext[None, str]) -> None:
        ctx.set_state(EVIL, {{EVIL: EVIL}})
        await ctx.yield_output(EVIL)
        await ctx.request_info(EVIL, str, request_id=EVIL)

    @response_handler
    async def decided(self, question: str, answer: str, ctx: WorkflowContext[None, str]) -> None:
        raise RuntimeError(EVIL)

workflow = WorkflowBuilder(name=EVIL, start_executor=Clerk(EVIL)).build()
"""


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with code, and a store with a run of it that waits and one that failed; all that they say is evil."""
    (tmp_path / "evil_shop.py").write_text(SHOP)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "evil_shop", raising=False)

    async def fill() -> None:
        from evil_shop import workflow  # type: ignore[import-not-found]

        async with SQLiteCheckpointStorage("runs.db") as storage:
            for run_id in ("waits", "fails", EVIL):
                await workflow.run("go", run_id=run_id, checkpoint_storage=storage, tags={EVIL: EVIL})
            with pytest.raises(Exception, match="b"):
                await workflow.run(run_id="fails", responses={EVIL: "x"}, checkpoint_storage=storage)
            await export_to("evil.stepwell", storage, EVIL)

    asyncio.run(fill())
    return tmp_path


CODE = "evil_shop:workflow"
ARGUMENTS: dict[str, list[list[str]]] = {
    "list": [[]],
    "show": [[EVIL], ["fails"], ["fails@1"]],
    "events": [[EVIL], ["fails"]],
    "tail": [[EVIL]],
    "requests": [[]],
    "workers": [[]],
    "explain": [[], ["SW201"]],
    "respond": [["waits", "--response", json.dumps(EVIL), "--by", EVIL]],
    "fork": [["waits", "--set", f"/{EVIL}={EVIL}"], ["waits", "--dry-run", "--add", f"/x={EVIL}"]],
    "diff": [["waits@0", "waits@1"]],
    "run": [[CODE, "--input", "go"], [CODE, "--input", "go", "--follow"]],
    "submit": [[CODE, "--input", "go", "--run-id", EVIL[:20]]],
    "resume": [["fails", CODE]],
    "restore": [[f"{EVIL}@0", "--by", EVIL]],
    "cancel": [[EVIL, "--reason", EVIL]],
    "viz": [[CODE, "--format", form] for form in ("mermaid", "dot", "text")],
    "check": [[CODE]],
    "retry": [["fails", "--by", EVIL], ["--status", "failed", "--dry-run"]],
    "prune": [["--keep-last", "0", "--status", "failed", "--dry-run"]],
    "export": [[EVIL, "-o", "out.stepwell"], [EVIL, "--html", "-o", "out.html"]],
    "import": [["evil.stepwell", "--store", "sqlite:///new.db"]],
    "doctor": [[], [CODE]],
    "migrate": [["--dry-run"]],
}

SAYING = {"list", "show", "events", "tail", "requests", "diff", "run", "cancel", "check", "export", "import"}


def taking_json() -> set[str]:
    program = stepwell
    assert isinstance(program, Program)
    found = set()
    for name in COMMANDS:
        command = program.get_command(None, name)  # type: ignore[arg-type]
        assert command is not None
        found |= {name for option in command.params if "--json" in option.opts and option.is_flag}  # type: ignore[attr-defined]
    return found


def test_every_command_that_prints_json_is_tried_here() -> None:
    assert set(ARGUMENTS) == taking_json()


def invoked(*arguments: str) -> Result:
    done = CliRunner().invoke(stepwell, arguments, env={"STEPWELL_STORE": "sqlite:///runs.db", "STEPWELL_HOME": None})
    assert done.exception is None or isinstance(done.exception, SystemExit), repr(done.exception)
    assert "not foreseen" not in done.stderr
    return done


def documents(printed: str) -> list[Any]:
    try:
        return [json.loads(printed)]
    except ValueError:
        return [json.loads(line) for line in printed.split("\n") if line]


@pytest.mark.parametrize("name", ARGUMENTS)
def test_no_command_prints_them_and_json_still_says_them(shop: Path, name: str) -> None:
    for more in ARGUMENTS[name]:
        done = invoked(name, *more, "--json")
        assert done.exit_code in (0, 1, 4, 5), done.output
        assert FORBIDDEN.findall(done.output) == []
        said = json.dumps(documents(done.stdout), ensure_ascii=False)
        assert name not in SAYING or json.dumps(EVIL, ensure_ascii=False)[1:-1] in said
        plain = invoked(name, *more)
        assert FORBIDDEN.findall(plain.output) == []
    pages = [path.read_text() for path in shop.glob("*.html")]
    assert [FORBIDDEN.findall(page) for page in pages] == [[] for _ in pages]


def test_a_patch_and_a_page_on_stdout_are_escaped(shop: Path) -> None:
    patch = invoked("diff", "waits@0", "waits@1", "--patch")
    assert FORBIDDEN.findall(patch.output) == []
    assert {EVIL: EVIL} in [change.get("value") for change in json.loads(patch.stdout)]
    assert FORBIDDEN.findall(invoked("export", EVIL, "--html", "-o", "-").output) == []


# ---------------------------------------------------------------------------------------------------- pictures


class Worker(Executor):
    @handler
    async def work(self, text: str, ctx: WorkflowContext[str]) -> None:
        await ctx.send_message(text)


class Joiner(Executor):
    @handler
    async def join(self, texts: list[str], ctx: WorkflowContext) -> None:
        """They meet here."""


def evil_workflow(between: str) -> Workflow:
    def chosen(text: str) -> bool:
        return True

    chosen.__name__ = f"c{between}c"
    first, second, third = Worker(f"a{between}a"), Worker(f"b{between}b"), Joiner("third")
    return (
        WorkflowBuilder(name=f"w{between}w", start_executor=first)
        .add_edge(first, second, condition=chosen)
        .add_fan_in_edges([first, second], third)
        .build()
    )


def by_name(between: str) -> AgentWorkflowInstance:
    async def agent(messages: list[Any]) -> str:
        return "x"

    made = AgentWorkflow.create().with_name("w").add_agent(f"a{between}a", agent).add_agent("b", agent)
    return made.from_(f"a{between}a").to("b", when=equals("x", f"v{between}v")).build()


PICTURES: dict[str, Callable[[str], str]] = {
    "mermaid": lambda between: WorkflowViz(evil_workflow(between)).to_mermaid(),
    "dot": lambda between: WorkflowViz(evil_workflow(between)).to_digraph(),
    "text": lambda between: WorkflowViz(evil_workflow(between)).to_text(),
    "svg": lambda between: draw(evil_workflow(between), title=between),
    "by name": lambda between: by_name(between).to_mermaid(),
}
OBEYED = [c for c in HIDDEN if c not in LAYOUT]


@pytest.mark.parametrize("form", PICTURES)
def test_a_picture_shows_each_of_them_written_out(form: str) -> None:
    pictures = {c: PICTURES[form](c) for c in OBEYED}
    assert [c for c, picture in pictures.items() if FORBIDDEN.search(picture)] == []
    entities = [f"&#{ord(c)};" for c in OBEYED] + [f"#{ord(c)};" for c in OBEYED]
    assert [entity for picture in pictures.values() for entity in entities if entity in picture] == []  # nor by number
    unlike = set(pictures.values())
    assert len(unlike) == len(OBEYED)  # each is shown as what it is


async def test_a_report_shows_them_written_out(shop: Path) -> None:
    async with SQLiteCheckpointStorage("runs.db") as storage:
        page = await report_run(storage, EVIL)
    assert FORBIDDEN.findall(page) == []
    assert "\\u202e" in page


def test_joined_letters_are_left_alone_in_pictures() -> None:
    family, persian = "\U0001f468\u200d\U0001f469\u200d\U0001f467", "\u0645\u06cc\u200c\u062e\u0648\u0627\u0647\u0645"
    assert family in draw(evil_workflow(family), title=family)
    assert persian in draw(evil_workflow(persian), title=persian)


def test_json_says_the_same_when_it_is_parsed() -> None:
    text = json.dumps({EVIL: [EVIL, "plain", "\U0001f600"]}, ensure_ascii=False)
    assert FORBIDDEN.findall(visible_json(text)) == []
    assert json.loads(visible_json(text)) == json.loads(text)
    assert visible("a\u202eb") == "a\\u202eb"
