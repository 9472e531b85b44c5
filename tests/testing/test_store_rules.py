"""A store that breaks a promise is found out by the rule that says it."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest

from stepwell.errors import StepwellError
from stepwell.storage.port import Store
from stepwell.stores.memory.store import MemoryStore
from stepwell.testing import STORE_RULES, StoreRule
from tests.support import broken_stores as broken
from tests.support.lanes import marks_of

FOUND_OUT_BY: dict[type[MemoryStore], list[str]] = {
    broken.AppendsWithoutCheck: [
        "a_number_is_taken_once",
        "a_new_run_begins_with_number_0",
        "of_many_appends_of_one_number_exactly_one_wins",
        "a_writer_that_was_overtaken_is_refused",
        "each_number_is_given_to_one_of_those_who_append_at_once",
        "a_refused_append_opens_and_closes_no_question_and_sets_no_wake",
    ],
    broken.ConsumesBeforeItAppends: [
        "a_refused_append_consumes_no_mail",
        "a_refused_append_forgets_nothing",
        "a_writer_that_was_overtaken_is_refused",
        "nobody_sees_an_append_without_its_mail",
    ],
    broken.ConsumesAfterItAppends: ["nobody_sees_an_append_without_its_mail"],
    broken.ForgetsWhatGoesAlong: [
        "everything_happens_along_with_one_record",
        "an_append_forgets_what_it_settles",
        "a_question_is_pending_until_it_is_closed",
        "a_run_is_woken_when_its_newest_record_says",
    ],
    broken.ReducesNothing: ["an_append_reduces_earlier_records"],
    broken.ReducesFirst: ["a_refused_append_reduces_nothing"],
    broken.LetsASecondAnswerWin: [
        "the_first_mail_of_a_key_wins_for_ever",
        "of_many_posts_of_one_key_exactly_one_is_left",
        "the_first_mail_of_a_key_wins_whoever_posts_it",
        "each_key_is_given_to_one_of_those_who_post_at_once",
    ],
    broken.LosesOrder: ["mail_comes_oldest_first", "entries_come_in_the_order_of_commits"],
    broken.MixesMailOfRuns: ["mail_of_one_run_is_not_anothers", "mail_of_odd_runs_and_keys_is_kept_apart"],
    broken.MixesRunsOfLikeNames: ["runs_and_workflows_of_odd_names_are_kept_apart"],
    broken.ReadsOverGaps: ["a_chain_with_a_missing_link_is_named"],
    broken.TakesWhatOthersAreBasedOn: [
        "the_newest_record_does_not_go_with_many",
        "nothing_goes_that_a_record_which_stays_is_based_on",
    ],
    broken.LosesThePlaceOfAPage: ["questions_come_in_pages", "the_page_after_a_question_that_is_closed_misses_none"],
    broken.LooksForPatterns: [
        "runs_are_found_by_the_beginning_of_their_id",
        "runs_are_found_by_a_text_in_what_is_said_of_them",
    ],
    broken.LetsEverybodyDrive: ["a_run_is_driven_by_one_at_a_time", "a_run_is_driven_by_one_of_them_at_a_time"],
}
CASES = [(kind, name) for kind, names in FOUND_OUT_BY.items() for name in names]


def rules(name: str) -> list[StoreRule]:
    """The rule of that name, in every manner."""
    found = [rule for rule in STORE_RULES if str(rule) == f"{name}-{rule.manner}"]
    assert found, name
    return found


async def breaks(rule: StoreRule, open_store: Callable[[], Any]) -> bool:
    try:
        await rule.check(open_store)
    except (AssertionError, StepwellError):
        return True
    return False


@pytest.mark.parametrize("rule", [pytest.param(rule, marks=marks_of(rule)) for rule in STORE_RULES], ids=str)
async def test_a_sound_store_keeps_every_rule(rule: StoreRule) -> None:
    store = MemoryStore()
    await rule.check(lambda: store)  # opened twice, it is the same


@pytest.mark.parametrize(("kind", "name"), CASES, ids=lambda part: getattr(part, "__name__", part))
async def test_a_broken_store_is_found_out_in_every_manner(kind: type[MemoryStore], name: str) -> None:
    for rule in rules(name):
        store = kind()
        assert await breaks(rule, lambda: store), str(rule)  # noqa: B023 - it is called before the next turn


async def test_a_store_that_changes_texts_is_found_out() -> None:
    plain, summed, _ = rules("a_body_comes_back_as_it_was_written")
    assert await breaks(plain, broken.TidiesBodies)
    assert await breaks(summed, broken.TidiesBodies)


async def test_an_opening_that_does_not_look_again_is_found_out() -> None:
    for rule in rules("a_writer_that_was_overtaken_is_refused"):
        shared = MemoryStore()
        assert await breaks(rule, lambda: broken.BelievesWhatItKnew(shared)), str(rule)  # noqa: B023 - see above


class Watched(MemoryStore):
    closed = 0

    async def close(self) -> None:
        self.closed += 1


async def test_what_a_rule_opened_it_closes_also_if_it_was_broken() -> None:
    (rule, *_) = rules("an_empty_store_knows_nothing")
    opened: list[Watched] = []

    async def open_store() -> Store:
        opened.append(Watched())
        await opened[-1].send("r", "k", b"{}")
        return opened[-1]

    await rule.check(open_store)
    assert [store.closed for store in opened] == [1]
    (rule, *_) = rules("a_run_without_mail_has_none")
    assert await breaks(rule, open_store)
    assert [store.closed for store in opened] == [1, 1]


def test_every_rule_has_a_name_of_its_own() -> None:
    assert len({str(rule) for rule in STORE_RULES}) == len(STORE_RULES)


@pytest.mark.process
def test_rules_do_not_pass_where_assertions_are_left_out() -> None:
    program = (
        "import asyncio; from stepwell.testing import STORE_RULES; asyncio.run(STORE_RULES[0].check(lambda: None))"
    )
    done = subprocess.run([sys.executable, "-O", "-c", program], capture_output=True, text=True)
    assert "run them without -O" in done.stderr


@pytest.mark.process
def test_the_rules_need_no_pytest() -> None:
    program = "import sys, stepwell.testing; print('pytest' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("False\n", "")
