"""Retry and time limits as they are declared: what is allowed, and what it comes to."""

import functools
import math
import re
from dataclasses import FrozenInstanceError
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stepwell.errors import (
    CodecError,
    DefinitionError,
    HandlerTimeout,
    PrivateMissing,
    RunError,
    StepwellError,
    StoreUnavailable,
)
from stepwell.graph.retry import NO_LIMITS, Limits, RetryPolicy, limits

NAN, INF = math.nan, math.inf
TOO_BIG = 10**400  # an int that no float can hold


def a_timeout() -> HandlerTimeout:
    return HandlerTimeout("too slow", run_id="r", executor_id="e")


# a retry policy


def test_a_policy_that_says_nothing_tries_three_times_on_every_exception() -> None:
    policy = RetryPolicy()
    assert (policy.max_attempts, policy.initial_interval, policy.backoff_factor) == (3, 1.0, 2.0)
    assert (policy.max_interval, policy.jitter, policy.retry_on) == (60.0, 0.5, Exception)


def test_a_policy_cannot_be_changed() -> None:
    with pytest.raises(FrozenInstanceError):
        RetryPolicy().max_attempts = 4  # type: ignore[misc]


@pytest.mark.parametrize(
    "said",
    [
        {"max_attempts": 1},
        {"initial_interval": 0},
        {"initial_interval": timedelta(0)},
        {"initial_interval": timedelta(minutes=1)},
        {"backoff_factor": 1},
        {"max_interval": 0.0},
        {"max_interval": timedelta(hours=1)},
        {"jitter": 0},
        {"jitter": 1},
        {"retry_on": KeyboardInterrupt},
        {"retry_on": (OSError, ValueError)},
        {"retry_on": ()},
        {"retry_on": lambda error: True},
        {"retry_on": functools.partial(isinstance, OSError)},
    ],
)
def test_the_edges_of_what_is_allowed_are_allowed(said: dict[str, Any]) -> None:
    RetryPolicy(**said)


@pytest.mark.parametrize(
    ("name", "wrong"),
    [
        ("max_attempts", 0),
        ("max_attempts", -1),
        ("initial_interval", -0.1),
        ("initial_interval", timedelta(seconds=-1)),
        ("initial_interval", NAN),
        ("initial_interval", INF),
        ("initial_interval", TOO_BIG),
        ("backoff_factor", 0.9),
        ("backoff_factor", NAN),
        ("backoff_factor", INF),
        ("backoff_factor", TOO_BIG),
        ("max_interval", -1),
        ("max_interval", timedelta(days=-1)),
        ("max_interval", NAN),
        ("max_interval", INF),
        ("jitter", -0.1),
        ("jitter", 1.1),
        ("jitter", NAN),
        ("jitter", INF),
    ],
)
def test_a_number_outside_of_what_is_allowed_is_a_value_error_that_says_both(name: str, wrong: Any) -> None:
    shown = wrong.total_seconds() if isinstance(wrong, timedelta) else wrong
    with pytest.raises(ValueError, match=f"^{name} must be .*, not {re.escape(repr(shown))}$"):
        RetryPolicy(**{name: wrong})


@pytest.mark.parametrize(
    ("name", "wrong"),
    [
        ("max_attempts", True),
        ("max_attempts", 2.0),
        ("max_attempts", "3"),
        ("max_attempts", None),
        ("initial_interval", True),
        ("initial_interval", "1"),
        ("initial_interval", None),
        ("backoff_factor", True),
        ("backoff_factor", "2"),
        ("backoff_factor", timedelta(seconds=2)),
        ("max_interval", False),
        ("max_interval", "60"),
        ("jitter", True),
        ("jitter", timedelta(seconds=1)),
        ("jitter", None),
    ],
)
def test_what_is_no_number_is_a_type_error_that_says_what_was_given_and_what_is_allowed(name: str, wrong: Any) -> None:
    with pytest.raises(TypeError, match=f"^{name} must be .*, not {re.escape(repr(wrong))}$"):
        RetryPolicy(**{name: wrong})


async def worth_it_later(error: Exception) -> bool:
    return False


class WorthItLater:
    async def __call__(self, error: Exception) -> bool:
        return False


@pytest.mark.parametrize("wrong", [None, "OSError", 3, int, OSError(), [OSError], (OSError, int), ((OSError,),)])
def test_retry_on_is_an_exception_class_a_tuple_of_them_or_a_function(wrong: Any) -> None:
    with pytest.raises(TypeError, match=r"^retry_on must be an exception class, a tuple of them, or a function"):
        RetryPolicy(retry_on=wrong)


@pytest.mark.parametrize("wrong", [worth_it_later, functools.partial(worth_it_later), WorthItLater()])
def test_retry_on_is_no_async_function_because_what_it_returns_would_always_be_a_yes(wrong: Any) -> None:
    with pytest.raises(TypeError, match=r"^retry_on must be .*, and must not be async: "):
        RetryPolicy(retry_on=wrong)


# which errors are worth another attempt


@pytest.mark.parametrize(
    ("retry_on", "error", "wanted"),
    [
        (Exception, ValueError(), True),
        (BaseException, ValueError(), True),
        (OSError, ConnectionError(), True),
        (OSError, ValueError(), False),
        ((OSError, ValueError), ValueError(), True),
        ((OSError, ValueError), KeyError(), False),
        ((), ValueError(), False),
        (KeyboardInterrupt, ValueError(), False),
    ],
)
def test_an_error_of_a_class_that_was_named_is_worth_another_attempt(
    retry_on: Any, error: Exception, wanted: bool
) -> None:
    assert RetryPolicy(retry_on=retry_on).wants(error) is wanted


@pytest.mark.parametrize("retry_on", [Exception, BaseException, (Exception,), (OSError, Exception)])
@pytest.mark.parametrize(
    "error",
    [
        DefinitionError("broken"),
        RunError("lost", run_id="r"),
        StoreUnavailable("gone"),
        CodecError("cannot be written", path="$"),
    ],
)
def test_an_error_of_stepwell_itself_is_not_retried_unless_its_class_is_named(
    retry_on: Any, error: StepwellError
) -> None:
    assert not RetryPolicy(retry_on=retry_on).wants(error)
    assert RetryPolicy(retry_on=type(error)).wants(error)
    assert RetryPolicy(retry_on=(OSError, type(error))).wants(error)
    assert RetryPolicy(retry_on=StepwellError).wants(error)


def test_an_error_of_stepwell_that_is_also_another_error_is_not_retried_for_the_other_s_sake() -> None:
    missing = PrivateMissing("no key", run_id="r")
    assert isinstance(missing, KeyError)
    assert not RetryPolicy(retry_on=KeyError).wants(missing)
    assert RetryPolicy(retry_on=(KeyError, PrivateMissing)).wants(missing)


def test_naming_one_class_of_stepwell_does_not_name_the_others() -> None:
    policy = RetryPolicy(retry_on=(Exception, StoreUnavailable))
    assert policy.wants(StoreUnavailable("gone"))
    assert not policy.wants(DefinitionError("broken"))


@pytest.mark.parametrize(
    ("retry_on", "wanted"),
    [(Exception, True), (TimeoutError, True), (OSError, True), (HandlerTimeout, True), (ConnectionError, False)],
)
def test_the_timeout_of_a_handler_is_retried_like_any_other_timeout(retry_on: Any, wanted: bool) -> None:
    assert RetryPolicy(retry_on=retry_on).wants(a_timeout()) is wanted


@pytest.mark.parametrize("error", [ValueError("v"), DefinitionError("broken"), a_timeout()])
def test_a_function_decides_about_every_exception(error: Exception) -> None:
    asked: list[Exception] = []

    def yes(one: Exception) -> bool:
        asked.append(one)
        return True

    assert RetryPolicy(retry_on=yes).wants(error) is True
    assert RetryPolicy(retry_on=lambda one: False).wants(error) is False
    assert asked == [error]


def test_what_a_function_says_counts_as_yes_or_no() -> None:
    status_of: Any = lambda error: error.args[0] if error.args else None  # noqa: E731
    assert RetryPolicy(retry_on=status_of).wants(ValueError(503)) is True
    assert RetryPolicy(retry_on=status_of).wants(ValueError()) is False


# how long it waits


def test_every_wait_is_the_factor_times_the_one_before_up_to_the_longest() -> None:
    policy = RetryPolicy(initial_interval=1, backoff_factor=3, max_interval=20, jitter=0)
    assert [policy.delay(failed, 0.9) for failed in (1, 2, 3, 4, 5)] == [1, 3, 9, 20, 20]


def test_intervals_may_be_timedeltas() -> None:
    policy = RetryPolicy(initial_interval=timedelta(milliseconds=500), max_interval=timedelta(seconds=1), jitter=0)
    assert [policy.delay(failed, 0) for failed in (1, 2, 3)] == [0.5, 1.0, 1.0]


def test_the_first_wait_is_no_longer_than_the_longest_either() -> None:
    assert RetryPolicy(initial_interval=120, jitter=0).delay(1, 0) == 60


def test_chance_takes_away_at_most_the_share_that_is_left_to_it() -> None:
    assert RetryPolicy(initial_interval=8, jitter=0.5).delay(1, 0) == 8
    assert RetryPolicy(initial_interval=8, jitter=0.5).delay(1, 0.5) == 6
    assert RetryPolicy(initial_interval=8, jitter=1).delay(1, 0.75) == 2


@pytest.mark.parametrize("failed", [1100, 10**9, TOO_BIG])
def test_the_wait_does_not_overflow_however_often_it_failed(failed: int) -> None:
    assert RetryPolicy(jitter=0).delay(failed, 0) == 60
    assert RetryPolicy(backoff_factor=10**300, jitter=0).delay(failed, 0) == 60
    assert RetryPolicy(backoff_factor=1, initial_interval=7, jitter=0).delay(failed, 0) == 7
    assert RetryPolicy(initial_interval=0).delay(failed, 0.5) == 0


finite = st.floats(min_value=0, max_value=1e300, allow_nan=False)
seconds = finite | st.timedeltas(min_value=timedelta(0))
policies = st.builds(
    RetryPolicy,
    initial_interval=seconds,
    backoff_factor=st.floats(min_value=1, max_value=1e300) | st.integers(min_value=1, max_value=10**9),
    max_interval=seconds,
    jitter=st.floats(min_value=0, max_value=1),
)
failures = st.integers(min_value=1, max_value=100) | st.integers(min_value=1, max_value=10**310)
chances = st.floats(min_value=0, max_value=1, exclude_max=True)


@given(policies, failures, chances)
def test_a_wait_is_a_finite_time_between_what_chance_leaves_and_the_longest(
    policy: RetryPolicy, failed: int, chance: float
) -> None:
    whole = policy.delay(failed, 0)
    assert 0 <= whole * (1 - policy.jitter) <= policy.delay(failed, chance) <= whole
    assert timedelta_or_seconds(policy.max_interval) >= whole < INF


@given(policies, failures, failures)
def test_a_wait_is_never_shorter_than_one_after_fewer_failures(policy: RetryPolicy, one: int, other: int) -> None:
    assert policy.delay(min(one, other), 0) <= policy.delay(max(one, other), 0)


def timedelta_or_seconds(time: float | timedelta) -> float:
    return time.total_seconds() if isinstance(time, timedelta) else time


# limits


def test_limits_that_were_not_given_are_none() -> None:
    assert limits(None, None, None) == NO_LIMITS == Limits(retry=None, timeout=None, idle_timeout=None)


def test_limits_are_kept_in_seconds() -> None:
    policy = RetryPolicy()
    given = limits(policy, timedelta(minutes=2), 5)
    assert given == Limits(policy, 120.0, 5.0)
    assert type(given.timeout) is type(given.idle_timeout) is float


def test_what_limits_do_not_say_is_what_the_others_say() -> None:
    own, general = RetryPolicy(max_attempts=2), RetryPolicy(max_attempts=9)
    others = Limits(general, 60.0, 10.0)
    assert NO_LIMITS.or_else(others) == others
    assert others.or_else(NO_LIMITS) == others
    assert Limits(retry=own).or_else(others) == Limits(own, 60.0, 10.0)
    assert Limits(timeout=1.0).or_else(others) == Limits(general, 1.0, 10.0)
    assert Limits(idle_timeout=1.0).or_else(Limits(timeout=2.0)) == Limits(None, 2.0, 1.0)


@pytest.mark.parametrize("wrong", [3, True, RetryPolicy, {"max_attempts": 3}, OSError])
def test_retry_is_a_retry_policy(wrong: Any) -> None:
    with pytest.raises(TypeError, match=f"^retry must be a RetryPolicy, .*, not {re.escape(repr(wrong))}$"):
        limits(wrong, None, None)


@pytest.mark.parametrize("name", ["timeout", "idle_timeout"])
@pytest.mark.parametrize("wrong", [0, -1, timedelta(0), timedelta(seconds=-1), NAN, INF, -INF, TOO_BIG])
def test_a_time_limit_is_positive_and_finite(name: str, wrong: Any) -> None:
    with pytest.raises(ValueError, match=f"^{name} must be more than 0 seconds, a timedelta, or None, not "):
        limits(None, **{"timeout": None, "idle_timeout": None, name: wrong})


@pytest.mark.parametrize("name", ["timeout", "idle_timeout"])
@pytest.mark.parametrize("wrong", [True, "5", [5], 5j])
def test_a_time_limit_is_a_number_of_seconds_or_a_timedelta(name: str, wrong: Any) -> None:
    with pytest.raises(TypeError, match=f"^{name} must be more than 0 seconds, .*, not {re.escape(repr(wrong))}$"):
        limits(None, **{"timeout": None, "idle_timeout": None, name: wrong})
