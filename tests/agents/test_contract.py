"""What is true of the agents of every library, in real processes: one begins and dies or ends, the next goes on.

What each library brings is in its kit (kits/__init__.py says what a kit is). Two processes do all errands of a kit; the
tests look at what came of them, and at what the model was asked.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.agents.kits import KITS
from tests.agents.kits.deeds import HANGING, NO_KEY, TRACE, traces
from tests.agents.openai_server import TOKENS_IN, TOKENS_OUT, Server, model_server

pytestmark = pytest.mark.process

HERE = Path(__file__).parent
Json = dict[str, Any]

FIRST: dict[str, Json] = {
    "approve": {"agent": "clerk", "say": "pay 40"},
    "edit": {"agent": "clerk", "say": "both 41 Rome"},
    "deny": {"agent": "clerk", "say": "pay 42"},
    "answer": {"agent": "clerk", "say": "pay 43"},
    "again": {"agent": "clerk", "say": "again 50 51"},
    "converse": {"agent": "clerk", "say": "my name is Ada"},
    "handoff": {"agent": "clerk", "say": "call boss", "handoffs": {"boss": "Decides what the clerk may not."}},
    "report": {"agent": "reporter", "say": "report Rome"},
    "everywhere": {"agent": "clerk", "everywhere": "both 44 Rome"},
    "parallel": {"agent": "clerk", "say": "weather Kyiv Oslo", "die": "Kyiv"},  # the last: the process dies of it
}
SECOND: dict[str, Json] = {
    "approve": {"decision": "approve"},
    "edit": {"decision": "approve", "arguments": {"amount": 5}},
    "deny": {"decision": "deny", "reason": "too dear"},
    "answer": {"decision": "answer", "result": "paid by hand"},
    "again": {"decision": "approve"},
    "converse": {"send": "and what is my name?"},
    "handoff": {"send": "what did the boss say?"},
    "parallel": {"responses": {}},
}


@dataclass
class Seen:
    """What came of the errands of a kit."""

    first: dict[str, Json]
    second: dict[str, Json]
    effects: list[str]
    keys: list[str]  # of the calls that had these effects
    server: Server

    def of(self, errand: str, process: int) -> Json:
        seen = (self.first, self.second)[process - 1][errand]
        assert "failed" not in seen, seen["failed"]
        return seen


class Processes:
    def __init__(self, kit: str, server: Server, place: Path) -> None:
        self._kit, self._server, self._place = kit, server, place

    def run(self, errands: dict[str, Json], *, hanging: str = "", ends_with: int = 0) -> dict[str, Json]:
        given = [{**errand, "name": name, "url": self._server.url(name)} for name, errand in errands.items()]
        command = [sys.executable, str(HERE / "contract_errands.py"), self._kit, str(self._place / "runs.db")]
        environment = {**os.environ, TRACE: str(self.trace), HANGING: hanging}
        done = subprocess.run(
            [*command, json.dumps(given)], env=environment, capture_output=True, text=True, timeout=120, check=False
        )
        assert done.returncode == ends_with, done.stdout + done.stderr
        lines = [json.loads(line) for line in done.stdout.splitlines()]
        return {line.pop("errand"): line for line in lines}

    @property
    def trace(self) -> Path:
        return self._place / "trace.txt"


@pytest.fixture(scope="module", params=KITS)
def seen(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Seen]:
    cannot = KITS[request.param]
    with model_server() as server:
        processes = Processes(request.param, server, tmp_path_factory.mktemp(request.param))
        errands = {name: errand for name, errand in FIRST.items() if name not in cannot}
        dies = "parallel" in errands
        first = processes.run(errands, hanging="Oslo", ends_with=9 if dies else 0)
        second = processes.run(_going_on({name: SECOND[name] for name in SECOND if name in errands}, first))
        done = traces(processes.trace)
        yield Seen(first, second, [effect for effect, _ in done], [key for _, key in done], server)


def _going_on(errands: dict[str, Json], first: dict[str, Json]) -> dict[str, Json]:
    """What the second process does, once it is known what the first one was asked."""
    found: dict[str, Json] = {}
    for name, errand in errands.items():
        if "decision" in errand:
            errand = {"responses": dict.fromkeys(first[name].get("asked", ()), errand)}
        known: Json = {key: FIRST[name][key] for key in ("agent", "handoffs") if key in FIRST[name]}
        found[name] = {**known, **errand}
    return found


def test_a_tool_that_needs_approval_is_asked_about_before_it_is_called(seen: Seen) -> None:
    (asked,) = seen.of("approve", 1)["asked"].values()
    assert (asked["agent"], asked["tool"], asked["arguments"]) == ("clerk", "pay", {"amount": 40})
    assert asked["parameters"]["properties"]["amount"]["type"] == "integer"
    assert asked["description"] == "Pay an amount."
    assert seen.first["approve"]["outputs"] == []


def test_once_approved_it_is_called_once_and_the_model_goes_on(seen: Seen) -> None:
    (output,) = seen.of("approve", 2)["outputs"]
    assert output["text"] == "Results: paid 40"
    assert seen.effects.count("pay 40") == 1
    assert len(seen.server.requests("approve")) == 2
    assert seen.server.said("approve")[0] == ("system", "Be short.")


def test_a_tool_knows_a_key_for_the_very_call(seen: Seen) -> None:
    assert NO_KEY not in seen.keys
    assert seen.keys[seen.effects.index("pay 40")] != seen.keys[seen.effects.index("weather Rome")]


def test_what_the_model_says_is_told_in_pieces(seen: Seen) -> None:
    assert seen.of("approve", 2)["pieces"] == ["Results: ", "paid ", "40"]


def test_what_was_used_up_is_counted_over_both_processes(seen: Seen) -> None:
    usage = seen.of("approve", 2)["usage"]
    read = TOKENS_IN * sum(len(request["messages"]) for request in seen.server.requests("approve"))
    counted = [usage[key] for key in ("input_tokens", "output_tokens", "calls", "tool_calls")]
    assert counted == [read, 2 * TOKENS_OUT, 2, 1]


def test_arguments_can_be_edited_and_only_what_needs_approval_is_asked_about(seen: Seen) -> None:
    assert [asked["tool"] for asked in seen.of("edit", 1)["asked"].values()] == ["pay"]
    told = seen.of("edit", 2)["outputs"][0]["text"]  # some libraries add a word about the edit
    assert "paid 5" in told
    assert "Rome is sunny" in told
    assert (seen.effects.count("pay 5"), seen.effects.count("pay 41")) == (1, 0)


def test_an_approval_is_for_one_call_and_the_next_is_asked_about_again(seen: Seen) -> None:
    (asked,) = seen.of("again", 1)["asked"].values()
    assert asked["arguments"] == {"amount": 50}
    (asked,) = seen.of("again", 2)["asked"].values()
    assert asked["arguments"] == {"amount": 51}
    assert (seen.effects.count("pay 50"), seen.effects.count("pay 51")) == (1, 0)


def test_the_model_hears_why_a_call_was_denied(seen: Seen) -> None:
    assert "too dear" in seen.of("deny", 2)["outputs"][0]["text"]
    assert "too dear" in seen.server.said("deny")[-1][1]
    assert "pay 42" not in seen.effects


def test_a_person_can_answer_instead_of_the_tool(seen: Seen) -> None:
    assert seen.of("answer", 2)["outputs"][0]["text"] == "Results: paid by hand"
    assert "pay 43" not in seen.effects


def test_what_had_finished_when_the_process_died_is_not_done_again(seen: Seen) -> None:
    assert seen.of("parallel", 2)["outputs"][0]["text"] == "Results: Kyiv is sunny | Oslo is sunny"
    assert [effect for effect in seen.effects if "Kyiv" in effect or "Oslo" in effect] == [
        "weather Kyiv",
        "weather Oslo",
    ]
    assert len(seen.server.requests("parallel")) == 2


def test_a_conversation_goes_on_in_another_process(seen: Seen) -> None:
    assert seen.of("converse", 2)["outputs"][0]["text"] == "You said: and what is my name?"
    assert seen.server.said("converse") == [
        ("system", "Be short."),
        ("user", "my name is Ada"),
        ("assistant", "You said: my name is Ada"),
        ("user", "and what is my name?"),
    ]


def test_the_model_can_hand_over_and_the_agent_can_be_spoken_to_again(seen: Seen) -> None:
    assert seen.of("handoff", 1)["outputs"] == [{"text": "One moment.", "handoff": "boss", "value": None}]
    offered = {tool["function"]["name"]: tool["function"] for tool in seen.server.requests("handoff")[0]["tools"]}
    assert offered["boss"]["description"] == "Decides what the clerk may not."
    assert seen.of("handoff", 2)["outputs"][0]["text"] == "You said: what did the boss say?"
    roles = [role for role, _ in seen.server.said("handoff")]
    assert roles == ["system", "user", "assistant", "tool", "user"]


def test_an_answer_can_be_more_than_text(seen: Seen) -> None:
    (output,) = seen.of("report", 1)["outputs"]
    assert output["value"] == ["Report", {"city": "Rome", "degrees": 21}]
    assert len(seen.server.requests("report")) == 1


def test_a_run_comes_to_the_same_wherever_it_dies_and_whatever_write_fails(seen: Seen) -> None:
    tried = seen.of("everywhere", 1)
    assert tried["died"] > 12
    assert tried["writes that failed"] > 12


def test_nothing_of_this_library_is_imported_while_an_agent_works(seen: Seen) -> None:
    done = [*seen.first.values(), *seen.second.values()]
    assert [one["imported"] for one in done if one.get("imported")] == []
    assert sum("imported" in one for one in done) > 6
