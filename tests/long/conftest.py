"""What needs more time, or more programs, than `make test` has: collected only with STEPWELL_LONG=1."""

import os

import pytest

from tests.support.lanes import mark_room


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    mark_room(__file__, items)


collect_ignore_glob = [] if os.environ.get("STEPWELL_LONG") else ["test_*"]
