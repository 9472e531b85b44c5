"""What several tests of the codec share."""

from collections.abc import Iterator

import pytest

from stepwell.codec.codec import DEFAULT_CODEC
from stepwell.codec.registry import REGISTRY


@pytest.fixture
def clean_registry(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Nothing is registered, and nothing stays so."""
    for name in ("by_tag", "by_former_name", "_registrations"):
        monkeypatch.setattr(REGISTRY, name, type(getattr(REGISTRY, name))())
    DEFAULT_CODEC.clear_kinds()
    yield
    DEFAULT_CODEC.clear_kinds()
