"""The rules of a run, as pure functions.

A workflow is a graph of executors that send each other messages. A run moves through it in
*supersteps*: every message in flight is delivered, the handlers run concurrently, and everything
they did (messages, state, outputs, requests) becomes one *commit*. Folding the commits of a run, one
after the other, gives its *checkpoint*: all that is needed to resume it on another machine.

This package decides what a superstep means; `engine` carries it out. Nothing here reads a clock,
starts a task, draws a random number or touches a store. The same values in give the same commit out,
on every machine and after every crash, and that is why a resumed run cannot differ from one that
was never interrupted.

**Order comes from the plan.** Handlers finish in any order, but their outcomes are merged in the
order in which the plan lists their deliveries. Who receives a message is decided once, when it is
sent, and is stored with it: a resume does not ask the conditions again and cannot reroute it. Two
executors that write one state key in one superstep are a conflict, unless a reducer says how the
values combine.

**Number and place.** Commits are numbered without gaps, and a checkpoint has the number of its
commit. Its *place* is the number of the commit that put its messages in flight: it names the
superstep that comes next. Usually the two are equal. They differ after a commit that is made
between two attempts at the same superstep: the run failed, was cancelled, was parked until a timer
is due, or was migrated to newer code. Such a commit takes a new number and keeps the place.
Deliveries are named after the place (`7.2` is the third delivery of place 7), and so is everything
derived from a delivery: the entries of the superstep log, idempotency keys, the ids of sub-workflow
runs. A second attempt therefore has the names of the first. It finds the outcomes that are already
stored, and an external service recognises the key of a call that it has seen before. If deliveries
were named after the number, every failure would orphan the work that it interrupted.

**Epoch.** Restoring a run to an earlier checkpoint does not erase what came after it; it appends a
commit that repeats the old state under a new number, at a new place, and increments the *epoch* of
the run. The epoch is part of every id that leaves the run and of every signal's key. Without it, a
request that is open again after a restore would be closed at once by the response it received in
the commits that were undone, because the first response to a request wins permanently.

**The last outcome travels in the commit.** Each outcome is stored in the superstep log as soon as
its handler returns, so that a crash repeats only the handlers that had not returned. The last one
to return is different: nothing is left to wait for, and the commit follows at once with everything
in it. Storing that outcome separately would double the writes of a superstep with a single handler,
which is the common case. If the process dies in between, the handler runs again under the same key,
just as if the process had died a moment earlier.

**Intake.** Whatever reaches a run from outside (a response, further input, a request to cancel) is
stored as a *signal* first. Intake turns responses and inputs into messages, in a commit that
consumes them in the same transaction: a signal is either applied, once, or still waiting. (A cancel
becomes a `cancelled` commit instead.) That commit puts new messages in flight and so begins a new
place. Deliveries that may already have been attempted must not be renamed; therefore such an intake
happens only when nothing is to be delivered, or, for a run with open requests, before its next
superstep starts. A *late* intake happens while all handlers of a superstep that are not done sleep or
wait for an answer, perhaps for days. It keeps the place; its messages join the superstep and come
last in its plan, so that no delivery is renamed. Only the answer to a request that was made in this
very superstep is held until its commit: before it, the executor that asked has not changed yet.

The functions, in the order in which a run meets them:

    begin, fork         an input, or a stored checkpoint    -> the first commit of a run
    plan                checkpoint                          -> the handlers to call
    route               one sent message, chosen targets    -> who receives it
    merge               checkpoint, plan, outcomes          -> the commit of the superstep
    intake              checkpoint, signals, due timers     -> a commit with their messages
    fail, cancel, park, retry
                        checkpoint                          -> a commit that changes only the status
    restore             head, an earlier checkpoint         -> a commit that moves the run back
    apply               checkpoint, commit                  -> the next checkpoint
    events              commit                              -> the events that observers receive
    find_incompatibilities, find_rejected_signals
                        checkpoint, another graph           -> why that graph cannot resume the run
    suggest_steps       checkpoint, another graph           -> what its missing parts may have become
    Migrator, migrate   checkpoint, declared migrations     -> the commit that adapts the run to it
"""

from stepwell.kernel.commit import apply, events, find_fired, is_at_rest, is_parked, output_events, request_events
from stepwell.kernel.compatibility import find_incompatibilities, find_rejected_signals
from stepwell.kernel.lifecycle import begin, cancel, fail, fork, intake, is_later, park, restore, retry, settle_asks
from stepwell.kernel.migrate import Migrator, migrate
from stepwell.kernel.requests import (
    early_requests,
    find_closed,
    find_left,
    find_used,
    inner_id,
    is_expired,
    open_requests,
    unused_warning,
)
from stepwell.kernel.suggestions import suggest_steps
from stepwell.kernel.superstep import (
    CommitDecision,
    drop_repeated,
    find_same,
    merge,
    name_request,
    name_requests,
    plan,
    route,
    status_of,
    waiting_joins,
)
from stepwell.kernel.timers import DueTimer, find_due, next_timer

__all__ = [
    "CommitDecision",
    "DueTimer",
    "Migrator",
    "apply",
    "begin",
    "cancel",
    "drop_repeated",
    "early_requests",
    "events",
    "fail",
    "find_closed",
    "find_due",
    "find_fired",
    "find_incompatibilities",
    "find_left",
    "find_rejected_signals",
    "find_same",
    "find_used",
    "fork",
    "inner_id",
    "intake",
    "is_at_rest",
    "is_expired",
    "is_later",
    "is_parked",
    "merge",
    "migrate",
    "name_request",
    "name_requests",
    "next_timer",
    "open_requests",
    "output_events",
    "park",
    "plan",
    "request_events",
    "restore",
    "retry",
    "route",
    "settle_asks",
    "status_of",
    "suggest_steps",
    "unused_warning",
    "waiting_joins",
]
