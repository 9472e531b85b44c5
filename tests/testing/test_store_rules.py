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
from stepwell.testing import OUTBOX_RULES, STORE_RULES, StoreRule
from stepwell.testing.faults.wrapped_store import WrappedStore
from tests.support import broken_stores as broken
from tests.support.lanes import marks_of

FOUND_OUT_BY: dict[type[MemoryStore], list[str]] = {
    broken.AppendsWithoutCheck: [
        "a_record_number_is_used_once",
        "a_new_run_starts_with_number_0",
        "concurrent_appends_of_one_number_have_one_winner",
        "a_stale_writer_is_refused",
        "concurrent_appends_across_programs_have_one_winner_per_number",
        "a_refused_append_changes_no_requests_and_no_wake",
        "a_refused_append_leaves_no_trace",
    ],
    broken.ConsumesBeforeItAppends: [
        "a_refused_append_consumes_no_signals",
        "a_refused_append_keeps_the_superstep_log",
        "a_stale_writer_is_refused",
        "an_append_and_its_consumed_signals_become_visible_together",
    ],
    broken.ConsumesAfterItAppends: ["an_append_and_its_consumed_signals_become_visible_together"],
    broken.ForgetsEffects: [
        "a_record_and_its_effects_are_stored_together",
        "an_append_drops_the_superstep_log_it_settles",
        "a_request_is_pending_until_it_is_closed",
        "the_newest_record_sets_the_wake",
    ],
    broken.ReducesNothing: ["an_append_reduces_earlier_records"],
    broken.ReducesFirst: ["a_refused_append_reduces_nothing"],
    broken.LetsASecondAnswerWin: [
        "the_first_signal_of_a_key_wins_permanently",
        "concurrent_signals_of_one_key_have_one_winner",
        "the_first_signal_of_a_key_wins_across_programs",
        "concurrent_signals_across_programs_have_one_winner_per_key",
    ],
    broken.KeepsTheLeaseItShouldEnd: ["the_last_append_of_a_drive_ends_its_lease"],
    broken.EndsAnyLease: ["an_append_ends_no_lease_but_its_own"],
    broken.SendsForDriversOfThePast: [
        "a_driver_that_has_lost_its_lease_sends_nothing",
        "a_lease_is_lost_to_another_program",
    ],
    broken.LosesOrder: ["signals_are_read_oldest_first", "checkpoints_are_listed_by_time_run_and_number"],
    broken.MixesSignalsOfRuns: [
        "signals_of_different_runs_are_kept_apart",
        "signals_with_odd_runs_and_keys_are_kept_apart",
    ],
    broken.MixesRunsOfLikeNames: ["runs_and_workflows_with_odd_names_are_kept_apart"],
    broken.ReadsOverGaps: ["a_chain_with_a_missing_record_is_reported"],
    broken.OpensInSteps: ["an_opened_run_is_read_at_one_moment"],
    broken.OpensForEverybody: ["opening_a_run_for_an_owner_acquires_it", "a_lease_is_lost_to_another_program"],
    broken.TakesWhatOthersAreBasedOn: [
        "the_newest_record_is_removed_only_with_effects",
        "the_base_of_a_delta_is_removed_only_if_the_delta_is_replaced",
        "a_refused_rewrite_changes_nothing",
    ],
    broken.RenewsWhenAskedToLook: ["asking_how_leases_stand_extends_none"],
    broken.LosesThePlaceOfAPage: ["requests_are_listed_in_pages", "the_page_after_a_closed_request_misses_none"],
    broken.LooksForPatterns: [
        "runs_are_found_by_id_prefix",
        "runs_are_found_by_text_in_id_workflow_and_tags",
    ],
    broken.LetsEverybodyDrive: [
        "a_run_has_one_driver_at_a_time",
        "a_run_has_one_driver_across_programs",
        "one_program_at_a_time_holds_the_lease_for_delivering",
    ],
    broken.WritesMessagesBeforeItAppends: ["a_refused_commit_writes_no_message"],
    broken.ForgetsMessagesThatWereRead: ["a_message_stays_until_it_is_settled"],
    broken.SendsAllAtOnce: [
        "messages_of_a_run_are_due_one_after_the_other",
        "a_failed_attempt_keeps_its_run_back_until_the_message_is_set_aside",
    ],
    broken.LooksAtOldMessages: [
        "a_commit_and_its_messages_become_visible_together",
        "a_commit_writes_the_messages_that_it_causes",
    ],
}
RULES = (*STORE_RULES, *OUTBOX_RULES)
CASES = [(kind, name) for kind, names in FOUND_OUT_BY.items() for name in names]


def rules(name: str) -> list[StoreRule]:
    """The rule of that name, in every manner."""
    found = [rule for rule in RULES if str(rule) == f"{name}-{rule.manner}"]
    assert found, name
    return found


async def breaks(rule: StoreRule, open_store: Callable[[], Any]) -> bool:
    try:
        await rule.check(open_store)
    except (AssertionError, StepwellError):
        return True
    return False


@pytest.mark.parametrize("rule", [pytest.param(rule, marks=marks_of(rule)) for rule in RULES], ids=str)
async def test_a_sound_store_keeps_every_rule(rule: StoreRule) -> None:
    store = MemoryStore()
    await rule.check(lambda: store)  # opened twice, it is the same


@pytest.mark.parametrize(("kind", "name"), CASES, ids=lambda part: getattr(part, "__name__", part))
async def test_a_broken_store_is_found_out_in_every_manner(kind: type[MemoryStore], name: str) -> None:
    for rule in rules(name):
        store = kind()
        assert await breaks(rule, lambda: store), str(rule)  # noqa: B023 - it is called before the next turn


async def test_a_store_that_changes_texts_is_found_out() -> None:
    plain, summed, _ = rules("a_body_is_read_back_unchanged")
    assert await breaks(plain, broken.TidiesBodies)
    assert await breaks(summed, broken.TidiesBodies)


async def test_an_opening_that_does_not_look_again_is_found_out() -> None:
    for rule in rules("a_stale_writer_is_refused"):
        shared = MemoryStore()
        assert await breaks(rule, lambda: broken.TrustsItsCache(shared)), str(rule)  # noqa: B023 - see above


class Watched(MemoryStore):
    closed = 0

    async def close(self) -> None:
        self.closed += 1


async def test_what_a_rule_opened_it_closes_also_if_it_was_broken() -> None:
    (rule, *_) = rules("an_empty_store_has_no_records")
    opened: list[Watched] = []

    async def open_store() -> Store:
        opened.append(Watched())
        await opened[-1].send("r", "k", b"{}")
        return opened[-1]

    await rule.check(open_store)
    assert [store.closed for store in opened] == [1]
    (rule, *_) = rules("a_run_without_signals_has_none")
    assert await breaks(rule, open_store)
    assert [store.closed for store in opened] == [1, 1]


def test_every_rule_has_a_name_of_its_own() -> None:
    assert len({str(rule) for rule in RULES}) == len(RULES)


async def test_a_store_without_an_outbox_is_told_so() -> None:
    with pytest.raises(TypeError, match="WrappedStore has no outbox"):
        await OUTBOX_RULES[0].check(lambda: WrappedStore(MemoryStore()))


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
