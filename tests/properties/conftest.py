"""Properties take long: each is tried with many examples."""

import pytest

from tests.support.lanes import mark_room


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    mark_room(__file__, items, "long")
