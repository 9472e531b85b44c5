"""`stepwell run flow.yaml --agents module:agents`: a definition file with the agents of a module."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.command_line import ran
from tests.support.terminal import Terminal

pytestmark = pytest.mark.process

FLOW = """
format: 1
name: Review
nodes:
  - id: draft
    agent: writer
  - id: review
    output_mode: structured
    output_types: [Verdict]
edges:
  - {from: draft, to: review}
"""

AGENTS = """
from dataclasses import dataclass
from stepwell.agents import ScriptedAgent

@dataclass
class Verdict:
    good: bool

agents = {"writer": ScriptedAgent("writer", ["A lamp."]), "review": ScriptedAgent("review", ['{"good": true}'])}
agents["Verdict"] = Verdict

async def later():
    return agents

number = 3
few = {"writer": agents["writer"]}
"""


@pytest.fixture(autouse=True)
def _files(tmp_path: Path) -> None:
    (tmp_path / "flow.yaml").write_text(FLOW)
    (tmp_path / "crew.py").write_text(AGENTS)


@pytest.mark.parametrize("agents", ["crew:agents", "crew:later"])
def test_a_file_runs_with_the_agents_of_a_module(agents: str) -> None:
    done = ran("run", "flow.yaml", "--agents", agents, "--input", "Write.", "--run-id", "r")
    assert (done.returncode, done.stdout) == (0, '{"good":true}\n'), done.stderr
    again = ran("resume", "r", "flow.yaml", "--agents", agents)
    assert (again.returncode, again.stdout) == (0, '{"good":true}\n'), again.stderr


def test_a_file_is_drawn_without_agents() -> None:
    assert ran("viz", "flow.yaml", "--format", "text").stdout == "start: draft\ndraft -> review\n"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("flow.yaml",), "flow.yaml names its agents, but does not contain them"),
        (("none.yaml", "--agents", "crew:agents"), "cannot read none.yaml: No such file or directory"),
        (("flow.yaml", "--agents", "crew:number"), "--agents must name a mapping of names to agents"),
        (("flow.yaml", "--agents", "crew:few"), "the agent 'review' is not bound"),
        (("crew:agents", "--agents", "crew:agents"), "--agents is for a definition file (.json, .yaml, .yml)"),
    ],
)
def test_what_is_wrong_is_said(words: tuple[str, ...], said: str) -> None:
    done = ran("run", *words, "--input", "x")
    assert done.returncode in (2, 5)
    assert said in done.stderr
    assert "Traceback" not in done.stderr


def test_every_problem_of_a_file_is_reported_with_its_line(tmp_path: Path) -> None:
    (tmp_path / "flow.yaml").write_text(FLOW.replace("agent: writer", "output: Ticket"))
    done = ran("run", "flow.yaml", "--agents", "crew:agents", "--input", "x")
    assert done.returncode == 5
    assert "flow.yaml, line 6: `nodes[0]` has an unknown key 'output'" in done.stderr
    assert "write `output_types: [Ticket]` and `output_mode: structured`" in done.stderr


def test_what_is_shown_of_a_run_are_its_nodes_and_not_their_conductor() -> None:
    run = ["run", "flow.yaml", "--agents", "crew:agents", "--input", "Write.", "--run-id", "r-1"]
    followed = ran(*run, "--follow").stderr
    shown = [followed, *(ran(*command).stdout for command in (["events", "r-1"], ["tail", "r-1"], ["show", "r-1"]))]
    for text in shown:
        assert "draft" in text
        assert "conductor" not in text
        assert "NodesDecided" not in text
    assert "executor_completed  executor=draft" in shown[1]
    assert '[{"draft":"A lamp."}]' in shown[1]  # what it did, and not the message that says so
    # Programs get every event.
    assert '"executor":"conductor"' in ran("events", "r-1", "--json").stdout


@pytest.mark.parametrize("command", ["run", "tail"])
def test_the_live_view_has_a_row_for_each_node(command: str) -> None:
    run = ["run", "flow.yaml", "--agents", "crew:agents", "--input", "Write.", "--run-id", "r-1"]
    if command == "tail":
        assert ran(*run).returncode == 0
    with Terminal(*(["tail", "r-1", "--follow"] if command == "tail" else [*run, "--follow"])) as terminal:
        assert terminal.end() == 0
        rows = [line.split()[:2] for line in terminal.seen.splitlines() if line.startswith("  ")]
    assert ["draft", "completed"] in rows
    assert ["review", "completed"] in rows
    assert "conductor" not in terminal.seen


def test_nodes_are_shown_even_if_only_the_latest_checkpoint_is_kept() -> None:
    Path("flow.yaml").write_text(f"{FLOW}retention: latest-only\n")
    assert ran("run", "flow.yaml", "--agents", "crew:agents", "--input", "Write.", "--run-id", "r-1").returncode == 0
    assert "conductor" not in ran("events", "r-1").stdout
    assert "conductor" not in ran("show", "r-1").stdout
