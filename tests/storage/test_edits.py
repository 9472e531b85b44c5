"""A large value that changed a little is stored as what changed, and comes back whole."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stepwell import CheckpointCorrupt, Executor, InMemoryCheckpointStorage, WorkflowBuilder, WorkflowContext, handler
from stepwell.codec.codec import DEFAULT_CODEC, Encoded
from stepwell.storage.deltas import WORTH_IT, Splice, Spliced, StoredEdit, splice_of

FILLER = "é" * WORTH_IT


def spliced(before: bytes, after: bytes) -> Splice | None:
    return splice_of(Encoded(before, DEFAULT_CODEC), Encoded(after, DEFAULT_CODEC))


def made(before: bytes, splice: Splice) -> bytes:
    return before[: splice.start] + splice.text + before[len(before) - splice.tail :]


@pytest.mark.long
@given(before=st.text(), after=st.text(), beginning=st.booleans())
@settings(max_examples=300, deadline=None)
def test_what_changed_leads_from_the_one_text_to_the_other(before: str, after: str, beginning: bool) -> None:
    texts = [f"{FILLER}{text}" if beginning else f"{text}{FILLER}" for text in (before, after)]
    old, new = (text.encode() for text in texts)
    splice = spliced(old, new)
    assert splice is not None
    assert made(old, splice) == new
    splice.text.decode()  # it is whole characters


def test_a_long_text_is_compared_in_blocks() -> None:
    old = b"a" * 200_000 + b"x" + b"b" * 300_000
    new = b"a" * 200_000 + b"yz" + b"b" * 300_000
    splice = spliced(old, new)
    assert splice == Splice(200_000, 300_000, b"yz")


def test_what_changed_all_over_is_written_as_it_is() -> None:
    assert spliced(b"a" * 5000, b"b" * 5000) is None
    assert spliced(b"a" * 10, b"b" * 10) is None


def test_a_value_is_put_together_from_any_number_of_changes() -> None:
    text = ('"' + "a" * 3000 + '"').encode()
    parcel: Any = Encoded(text, DEFAULT_CODEC)
    for n in range(500):
        position = 1 + (n * 37) % 3000
        splice = Splice(position, len(text) - position - 1, b"b")
        text = made(text, splice)
        parcel = StoredEdit(splice, DEFAULT_CODEC, "it").apply_to(parcel)
    assert parcel.json == text
    assert parcel.open() == text.decode()[1:-1]


def test_a_change_to_what_is_not_there_is_damage() -> None:
    with pytest.raises(CheckpointCorrupt, match="the value it changes is missing"):
        StoredEdit(Splice(0, 0, b""), DEFAULT_CODEC, "it").apply_to(None)
    with pytest.raises(CheckpointCorrupt, match="changes text that does not exist"):
        _ = Spliced(Encoded(b"[]", DEFAULT_CODEC), Splice(3, 0, b""), DEFAULT_CODEC, "it").json


class Scribe(Executor):
    """Keeps a long list by a hook, writes another to the state, and appends to a third."""

    def __init__(self, id: str, turns: int) -> None:
        super().__init__(id)
        self.turns, self.kept = turns, ["k" * 200] * 50

    @handler
    async def write(self, turn: int, ctx: WorkflowContext[int]) -> None:
        self.kept[turn % 50] = f"turn {turn}"
        ctx.set_state("all", [*ctx.get_state("all", []), f"{turn:04}" * 250])
        ctx.append_state("log", f"{turn:04}" * 250)
        if turn < self.turns:
            await ctx.send_message(turn + 1)

    async def on_checkpoint_save(self) -> dict[str, Any]:
        return {"kept": self.kept, "turns": self.turns}

    async def on_checkpoint_restore(self, state: dict[str, Any]) -> None:
        self.kept, self.turns = state["kept"], state["turns"]


async def run(storage: Any, turns: int) -> None:
    scribe = Scribe("scribe", turns)
    builder = WorkflowBuilder(turns + 10, name="scribes", start_executor=scribe, checkpoint_storage=storage)
    await builder.add_edge(scribe, scribe).build().run(0, run_id="r")


async def test_every_checkpoint_of_a_long_run_is_what_it_was(storage: Any) -> None:
    await run(storage, 150)
    kept = ["k" * 200] * 50
    for checkpoint in (await storage.list_checkpoints(run_id="r"))[1:]:
        turn = checkpoint.iteration_count - 1
        kept[turn % 50] = f"turn {turn}"
        assert checkpoint.executor_states["scribe"] == {"kept": kept, "turns": 150}
        assert checkpoint.state["all"] == checkpoint.state["log"] == [f"{n:04}" * 250 for n in range(turn + 1)]


async def written(turns: int) -> tuple[int, int]:
    """The bytes of all records of a run, and of what it came to."""
    storage = InMemoryCheckpointStorage()
    await run(storage, turns)
    head = await storage.get_latest(run_id="r")
    assert head is not None
    last = head.to_dict()
    records = await storage._store.history("r")
    return sum(len(one.body) for one in records), len(json.dumps([last["state"], last["executor_states"]]))


@pytest.mark.long
async def test_full_history_costs_a_few_times_the_last_state_however_long_it_is() -> None:
    for turns in (200, 800):
        whole, last = await written(turns)
        assert whole < 3 * last


async def test_a_large_value_that_did_not_change_is_not_written_again() -> None:
    storage = InMemoryCheckpointStorage()

    class Clerk(Executor):
        @handler
        async def count(self, turn: int, ctx: WorkflowContext[int]) -> None:
            if turn == 0:
                ctx.set_state("documents", ["d" * 1000] * 1000)
            ctx.set_state("counter", turn)
            if turn < 300:
                await ctx.send_message(turn + 1)

    clerk = Clerk("clerk")
    builder = WorkflowBuilder(400, name="clerks", start_executor=clerk, checkpoint_storage=storage)
    await builder.add_edge(clerk, clerk).build().run(0, run_id="r")
    records = await storage._store.history("r")
    assert sum(len(one.body) for one in records) < 1_000_000 * 1.2
    head = await storage.get_latest(run_id="r")
    assert head is not None
    assert head.state["documents"] == ["d" * 1000] * 1000
