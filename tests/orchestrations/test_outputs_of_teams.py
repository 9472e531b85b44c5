"""`output_from` adds the answers of participants to the result of a team."""

from typing import Any

import pytest

from stepwell.agents import ScriptedAgent
from stepwell.orchestrations import ConcurrentBuilder, GroupChatBuilder


def concurrent(**options: Any) -> ConcurrentBuilder:
    return ConcurrentBuilder(participants=[ScriptedAgent("one", ["1"]), ScriptedAgent("two", ["2"])], **options)


def chat(**options: Any) -> GroupChatBuilder:
    return GroupChatBuilder(
        participants=[ScriptedAgent("one", ["1"]), ScriptedAgent("two", ["2"])],
        selection_func=lambda state: "one",
        max_rounds=1,
        **options,
    )


@pytest.mark.parametrize("team", [concurrent, chat])
async def test_the_result_of_a_team_stays_an_output(team: Any) -> None:
    alone = [output.text for output in (await team().build().run("go")).get_outputs()]
    more = [output.text for output in (await team(output_from=["one"]).build().run("go")).get_outputs()]
    assert more == ["1", *alone]
