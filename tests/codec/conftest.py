"""What several tests of the codec share."""

from collections.abc import Iterator

import pytest

from stepwell.codec import registry as registry
from stepwell.codec.codec import DEFAULT_CODEC


@pytest.fixture
def clean_registry(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Nothing is registered, and nothing stays so."""
    for name in ("registered", "renamed", "_terms"):
        monkeypatch.setattr(registry, name, type(getattr(registry, name))())
    DEFAULT_CODEC.forget()
    yield
    DEFAULT_CODEC.forget()
