"""What several tests of the runtime share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.observing import Watching, use


@pytest.fixture
def watching(monkeypatch: pytest.MonkeyPatch) -> Iterator[Watching]:
    told = Watching()
    use(told, monkeypatch)
    yield told
    told.close()
