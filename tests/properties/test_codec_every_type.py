"""The codec, type by type: none is left out, each comes back as it was from wherever it stands, and in any state."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from stepwell.codec.numpy_arrays import NUMPY_BY_TAG
from stepwell.codec.standard_values import VALUES_BY_TAG
from stepwell.errors import CodecError
from tests.properties.every_type import CODEC, EVERY_TYPE, VALUES
from tests.properties.spelling import WRAPPINGS, spelled

quick = settings(max_examples=12, deadline=None, print_blob=True, suppress_health_check=list(HealthCheck))


def test_no_type_is_left_out() -> None:
    assert set(VALUES) == {*VALUES_BY_TAG, *NUMPY_BY_TAG}


@pytest.mark.parametrize("name", EVERY_TYPE)
@quick
@given(st.data())
def test_it_comes_back_from_wherever_it_stands(name: str, data: st.DataObject) -> None:
    value = data.draw(EVERY_TYPE[name])
    for wrap in data.draw(st.lists(st.sampled_from(WRAPPINGS), max_size=3)):
        value = wrap(value)
    body = CODEC.encode(value)
    again = CODEC.decode(body)
    assert spelled(again) == spelled(value)
    assert CODEC.encode(again) == body
    with pytest.raises(CodecError):
        CODEC.decode(b"[" + body[: data.draw(st.integers(0, len(body)))])
