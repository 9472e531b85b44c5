"""The superstep as decisions.

A run moves in supersteps. In each, every message in flight is delivered, the handlers run side by
side, and what they did becomes one commit. Everything in this package is a pure function of values:
it reads no clock, starts no task and draws no random number, so the same inputs give the same
commit on every machine, and after every crash.

The order of things is the order of the plan, never that of the race: outcomes are merged as the
plan lists their deliveries, whichever handler returned first. Who gets a message is decided when it
is sent and stored with it, so that a resume cannot route it elsewhere. Two handlers that write one
state key in one superstep are a conflict, unless a reducer says how their values combine.

    begin, fork   input, or a stored checkpoint  → the first commit of a run
    intake        checkpoint, what came from outside → a commit with it among the messages
    route         one sent message, with verdicts → who takes it
    plan          checkpoint                      → the handler calls to make
    merge         checkpoint, plan, outcomes      → the next commit
    fail, cancel, park  checkpoint                → a commit that changes only the status
    restore       head, an earlier checkpoint     → a commit that moves the run back
    find_incompatibilities, find_rejected_signals
                  checkpoint, another graph       → why the run cannot go on with it, nor take in what came for it
    Migrator      checkpoint, migrations          → the run as they leave it; `migrate` makes the commit
    apply         checkpoint, commit              → the next checkpoint
    events        commit                          → what observers may be told
"""

from stepwell.kernel.commit_events import events, output_events, request_events
from stepwell.kernel.compatibility import find_incompatibilities, find_rejected_signals
from stepwell.kernel.intake import ReceivedInput, ReceivedResponse, ReceivedSignal, intake
from stepwell.kernel.lifecycle import apply, begin, cancel, fail, fork, is_at_rest, park, restore
from stepwell.kernel.merge import Merged, inner_id, merge
from stepwell.kernel.migrate import Migrator, migrate
from stepwell.kernel.plan import plan, status_of, waiting_joins
from stepwell.kernel.route import route

__all__ = [
    "Merged",
    "Migrator",
    "ReceivedInput",
    "ReceivedResponse",
    "ReceivedSignal",
    "apply",
    "begin",
    "cancel",
    "events",
    "fail",
    "find_incompatibilities",
    "find_rejected_signals",
    "fork",
    "inner_id",
    "intake",
    "is_at_rest",
    "merge",
    "migrate",
    "output_events",
    "park",
    "plan",
    "request_events",
    "restore",
    "route",
    "status_of",
    "waiting_joins",
]
