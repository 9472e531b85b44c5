"""What a library cannot do is not tried with it: the kits say what that is, and so do the docs."""

import pytest

from tests.agents.kits import KITS

NEEDS = {
    "test_a_tool_knows_a_key_for_the_very_call": "key",
    "test_what_had_finished_when_the_process_died_is_not_done_again": "parallel",
    "test_the_model_can_hand_over_and_the_agent_can_be_spoken_to_again": "handoff",
}


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    def is_beyond(item: pytest.Item) -> bool:
        kit = item.callspec.params.get("seen") if hasattr(item, "callspec") else None
        return kit in KITS and NEEDS.get(getattr(item, "originalname", "")) in KITS[kit]

    left_out = [item for item in items if is_beyond(item)]
    config.hook.pytest_deselected(items=left_out)
    items[:] = [item for item in items if item not in left_out]
