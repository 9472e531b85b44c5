"""`stepwell viz`: pictures of what a module holds."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support.command_line import ran

pytestmark = pytest.mark.process

SHOP = """
from stepwell import WorkflowBuilder, WorkflowContext, executor

print("loading")

@executor(id="first")
async def first(text: str, ctx: WorkflowContext[str]) -> None: ...

@executor(id="last")
async def last(text: str, ctx: WorkflowContext[None, str]) -> None: ...

builder = WorkflowBuilder(name="shop", start_executor=first).add_edge(first, last)
workflow = builder.build()

class Flows:
    inner = workflow

def made():
    return builder

async def made_later():
    return builder

def named():
    from stepwell.agents import ScriptedAgent
    from stepwell.declarative import AgentWorkflow

    return AgentWorkflow.create().with_name("team").add_agent("poet", ScriptedAgent("poet", ["tea"]))

def needs(storage):
    return workflow

def breaks():
    raise ValueError("no tea")

number = 3
"""


@pytest.fixture(autouse=True)
def _shop(tmp_path: Path) -> None:
    (tmp_path / "shop.py").write_text(SHOP)
    (tmp_path / "broken.py").write_text("raise RuntimeError('the kettle is cold')\n")
    (tmp_path / "script.py").write_text("import sys\nsys.exit(0)\n")
    (tmp_path / "needy.py").write_text("import tea_of_that_name\n")


@pytest.mark.parametrize("name", ["workflow", "builder", "made", "made_later", "Flows.inner"])
def test_a_workflow_a_builder_and_a_function_are_drawn(name: str) -> None:
    done = ran("viz", f"shop:{name}")
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[0] == "flowchart TD"
    assert "n0 --> n1;" in done.stdout
    assert done.stderr == "loading\n"  # no data of ours


def test_agents_by_name_are_drawn_by_their_own_nodes() -> None:
    assert ran("viz", "shop:named", "--format", "text").stdout == "start: poet\n"
    assert "conductor" not in ran("viz", "shop:named").stdout


def test_every_form() -> None:
    assert ran("viz", "shop:workflow", "--format", "dot").stdout.startswith("digraph workflow {")
    assert ran("viz", "shop:workflow", "--format", "text").stdout.splitlines()[0] == "start: first"
    assert ran("viz", "shop:workflow", "--format", "svg").stdout.startswith("<svg ")
    layout = json.loads(ran("viz", "shop:workflow", "--format", "layout").stdout)
    assert [node["id"] for node in layout["nodes"]] == ["first", "last"]
    found = json.loads(ran("viz", "shop:workflow", "--json", "--format", "text").stdout)
    assert (found["schema"], found["workflow"], found["format"]) == (3, "shop", "text")
    assert found["picture"].startswith("start: first\n")


@pytest.mark.parametrize(
    ("name", "code", "said"),
    [
        ("shop", 2, "not of the form MODULE:WORKFLOW"),
        ("shop:", 2, "not of the form MODULE:WORKFLOW"),
        ("shop:nothing", 5, "module 'shop' has no 'nothing'"),
        ("shop:number", 5, "is not a workflow, but an instance of int"),
        ("shop:needs", 5, "calling shop:needs raised TypeError"),
        ("shop:breaks", 5, "calling shop:breaks raised ValueError: no tea"),
        ("./shop.py:workflow", 2, "as in an import"),
        ("shop.py:workflow", 2, "as in an import"),
        ("nowhere:workflow", 5, "there is no module 'nowhere'"),
        ("shop.inner:workflow", 5, "there is no module 'shop.inner'"),
        ("broken:workflow", 5, "importing 'broken' raised RuntimeError: the kettle is cold"),
        ("script:workflow", 5, "importing 'script' raised SystemExit: 0"),
        ("needy:workflow", 5, "needs 'tea_of_that_name', which is not installed"),
    ],
)
def test_what_cannot_be_drawn_is_said(name: str, code: int, said: str) -> None:
    done = ran("viz", name)
    assert (done.returncode, done.stdout) == (code, "")
    assert said in done.stderr
    assert "Traceback" not in done.stderr
