"""A back end that is written from the documentation and the rules alone keeps every rule."""

from __future__ import annotations

import inspect
from pathlib import Path

import pytest

from stepwell.storage.port import Store
from stepwell.testing import STORE_RULES, StoreRule
from tests.support import minimal_store
from tests.support.lanes import marks_of
from tests.support.minimal_store import MinimalStore

pytestmark = pytest.mark.long  # it syncs every write


@pytest.mark.parametrize("rule", [pytest.param(rule, marks=marks_of(rule)) for rule in STORE_RULES], ids=str)
async def test_a_minimal_store_keeps_every_rule(rule: StoreRule, tmp_path: Path) -> None:
    def open_store() -> Store:  # a method that it lacks is a type error here
        return MinimalStore(tmp_path)

    await rule.check(open_store)


def test_a_minimal_store_has_fewer_than_300_lines() -> None:
    assert len(inspect.getsource(minimal_store).splitlines()) < 300
