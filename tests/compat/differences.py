"""What the door does differently on purpose. The page `docs/coming-from-agent-framework.md` has these rows.

`python -m tests.compat.differences` writes them into the page.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

PAGE = Path(__file__).resolve().parents[2] / "docs" / "coming-from-agent-framework.md"


class Difference(NamedTuple):
    """One intended difference; `programs` are those of the kit that show it."""

    theirs: str
    here: str
    why: str
    programs: tuple[str, ...]


DIFFERENCES = (
    Difference(
        "A checkpoint that cannot be saved is a line in the log; the run completes.",
        "The run fails with the storage's error and can be resumed.",
        "A run that seems stored and is not is the worst case.",
        ("a_storage_that_fails",),
    ),
    Difference(
        "After a failure, all handlers of the superstep run again.",
        "Those that had finished are not run again; their outcomes are stored when they return.",
        "A payment is not made twice because its sibling failed.",
        ("a_finished_sibling_is_not_run_again",),
    ),
    Difference(
        "When a handler fails, its siblings are cancelled.",
        "They finish first, and their outcomes are kept.",
        "Work that is nearly done is not thrown away.",
        ("a_sibling_of_a_failed_handler",),
    ),
    Difference(
        "Two processes may resume one checkpoint, and both run.",
        "The second gets `RunBusy`.",
        "A run has one driver at a time.",
        ("the_same_checkpoint_in_two_processes",),
    ),
    Difference(
        "Two executors may write one state key in a superstep; the last write wins.",
        "`StateConflict` is raised.",
        "A lost write is a bug that nobody sees.",
        ("two_writers_of_one_key",),
    ),
    Difference(
        "A handler sees what its siblings write while it runs.",
        "It sees the state as of the last superstep, and its own writes.",
        "The result must not depend on who is faster.",
        ("a_sibling_reads_what_another_wrote",),
    ),
    Difference(
        "A message is the sender's own object, also after it was sent.",
        "A message is what it was when it was sent; each receiver has a copy.",
        "A run behaves the same live and after a resume.",
        ("a_message_changed_after_it_was_sent",),
    ),
    Difference(
        "Values are pickled; those that cannot be are left out of the checkpoint, or fail it.",
        "Dataclasses, pydantic models and plain data are stored as JSON; anything else is a `CodecError` "
        "at the line that sends it. A run without a storage may send anything.",
        "Stored data is inert: reading it runs no code.",
        ("a_value_that_cannot_be_stored",),
    ),
    Difference(
        "A class of your own in a `FileCheckpointStorage` must be allowed by name.",
        "It need not be.",
        "Nothing is unpickled.",
        ("a_class_of_ones_own_in_a_file",),
    ),
    Difference(
        "Numbers as keys of dicts come back as strings.",
        "They come back as numbers.",
        "A value is what was stored.",
        ("int_keys_come_back_as_they_were",),
    ),
    Difference(
        "`function_invocation_kwargs` and `client_kwargs` are stored in checkpoints.",
        "They are never stored; pass them again after a restart.",
        "They hold tokens and other secrets of a user.",
        ("keyword_arguments_after_a_restart",),
    ),
    Difference(
        "`max_iterations` counts the supersteps since the message.",
        "It counts those since the last message or response.",
        "A chat may go on for as long as people answer.",
        ("supersteps_are_counted_from_the_last_answer",),
    ),
    Difference(
        "An edge condition is evaluated when the message is delivered.",
        "It is evaluated when the superstep that sent the message is committed; an error in it fails that superstep.",
        "Who receives a message is stored with it, so that no crash can reroute it.",
        ("condition_that_raises", "selection_of_a_stranger"),
    ),
    Difference(
        "A fan-in may fire between two messages of one source.",
        "It fires when all messages of the superstep have arrived, with all of them.",
        "The result must not depend on the order of arrival.",
        ("several_messages_to_a_fan_in",),
    ),
    Difference(
        "A superstep follows for messages that nobody receives.",
        "There is none; a warning is logged.",
        "There is nothing to do in it.",
        ("a_message_that_leads_nowhere",),
    ),
    Difference(
        "Outputs, requests and completions are emitted while the superstep runs.",
        "They are emitted when it is committed. Pieces of an agent's answer and events of a handler are live.",
        "What an event says has happened is stored.",
        ("events_of_a_handler",),
    ),
    Difference(
        "Each message that an edge group looks at is a span.",
        "It is not; the spans of builds, runs, handlers and sent messages are the same.",
        "Messages are routed in the commit, together.",
        ("spans_of_edges",),
    ),
    Difference(
        "Cancelling a request happens between supersteps.",
        "It is a superstep.",
        "What an executor does about it is committed like anything else.",
        ("cancelling_a_request",),
    ),
    Difference(
        "A function saves a checkpoint after each step; resumed after its end, it is called again.",
        "Each step is stored on its own; checkpoints are those of the start, of a wait and of the end. "
        "Resumed after its end, it returns its stored output.",
        "What is done is not done again, and a step costs what it adds.",
        ("a_completed_function_in_checkpoints",),
    ),
    Difference(
        "A step that captures variables cannot be stored, or called concurrently, without a `replay_key`.",
        "It can: its place in the function identifies it.",
        "A key is needed only where the place of a call may change.",
        ("a_step_with_captured_variables",),
    ),
    Difference(
        "An edit of a function's code makes its stored runs unusable.",
        "They continue with the new code; steps that are done are not called again.",
        "A fix has to reach the runs that need it.",
        ("a_function_whose_code_has_changed",),
    ),
    Difference(
        "Answers to earlier questions of a function are passed again with each new one.",
        "They are stored; passing them again does no harm.",
        "An answer is given once.",
        ("earlier_answers_of_a_function",),
    ),
)
DIFFERENT = {program: difference for difference in DIFFERENCES for program in difference.programs}


HEAD = "| Agent Framework | here | why |\n|---|---|---|\n"


def table() -> str:
    """Return the rows as the page shows them."""
    return HEAD + "".join(f"| {row.theirs} | {row.here} | {row.why} |\n" for row in DIFFERENCES)


def write_page() -> None:
    before, _, rest = PAGE.read_text().partition(HEAD)
    PAGE.write_text(before + table() + "\n" + rest.partition("\n\n")[2])


if __name__ == "__main__":
    write_page()
