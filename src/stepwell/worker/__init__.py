"""Workers: processes that drive whatever is ready, on any number of machines.

A worker asks the store which runs can be driven and nobody drives, acquires some of them, drives
each until it waits, sleeps, ends or its slice is over, and lets go. It holds nothing of its own:
the lease of a run says who drives it, and its fence refuses everybody else. So a worker may be
killed, paused or cut off at any moment, and another one continues from the last commit.

How soon a worker looks at the store is the business of a dispatcher. What it says is a hint: a lost
one costs the second until the worker looks anyway, a doubled one costs a query.

    worker.py       the loop: look at the store, start drives, wait, leave
    shortlist.py    which of the ready runs to take now, and which to leave to others (pure)
    slices.py       one drive of one run, from its acquisition to its release
    registration.py how a worker announces itself, and learns who shares its runs
    metrics.py      what it reports; health.py answers those who ask, by HTTP
    housekeeping.py deleting old runs by a policy
    shutdown.py     SIGTERM and SIGINT
    validation.py   checks of the arguments that a worker is made from
    dispatch/       what makes a worker look before its second is over
"""

from stepwell.codec import modules as _modules

_HOMES = {
    "HintReceiver": "worker.dispatch.protocol",
    "WorkerDispatcher": "worker.dispatch.protocol",
    "Polling": "worker.dispatch.polling",
    "Procrastinate": "worker.dispatch.procrastinate",
    "Worker": "worker.worker",
}

__getattr__, __dir__, __all__ = _modules.export_lazily(__name__, _HOMES)
