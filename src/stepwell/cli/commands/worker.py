"""`stepwell worker`: drive whatever is ready, until told to stop."""

from __future__ import annotations

import logging
from contextlib import AsyncExitStack
from datetime import timedelta

import click

from stepwell.cli.code_loader import load_code
from stepwell.cli.settings import LOG_FORMAT, common_options
from stepwell.cli.stores.session import run_on_store
from stepwell.cli.time_parser import parse_span
from stepwell.cli.type_names import BuiltInStorage
from stepwell.cli.views.output import reserve_stdout


def _parse_address(context: click.Context, option: click.Parameter, text: str | None) -> tuple[str, int] | None:
    if text is None:
        return None
    host, divider, port = text.rpartition(":")
    if not divider or not port.isascii() or not port.isdigit() or int(port) > 65535:
        raise click.BadParameter(f"{text!r} is not of the form HOST:PORT, such as 127.0.0.1:9100")
    return host.strip("[]"), int(port)


def _parse_policy(context: click.Context, option: click.Parameter, text: str | None) -> timedelta | None:
    if text is None:
        return None
    verb, _, span = text.partition(" ")
    age = parse_span(span.strip())
    if verb != "older-than" or age is None:
        raise click.BadParameter(f"{text!r} is not of the form 'older-than 30d'")
    return age


@click.command("worker")
@click.argument("workflows", metavar="MODULE:WORKFLOW...", nargs=-1, required=True)
@click.option(
    "--slots",
    type=click.IntRange(min=1),
    default=50,
    show_default=True,
    help="How many runs to drive at the same time.",
)
@click.option(
    "--lease", type=float, metavar="SECONDS", help="For how long a silent worker keeps its runs. Default: 30."
)
@click.option("--name", metavar="NAME", help="The name of this worker. Default: host, process and a random part.")
@click.option(
    "--grace",
    type=float,
    default=10.0,
    show_default=True,
    metavar="SECONDS",
    help="How long supersteps under way may take when the worker stops.",
)
@click.option(
    "--listen",
    callback=_parse_address,
    metavar="HOST:PORT",
    help="Answer GET /live, /ready and /metrics at this address, for monitoring.",
)
@click.option(
    "--prune",
    callback=_parse_policy,
    metavar="POLICY",
    help="Delete old runs every hour: 'older-than 30d' deletes completed and cancelled runs of that age.",
)
@click.option(
    "--dispatch",
    type=click.Choice(["polling", "procrastinate"]),
    default="polling",
    show_default=True,
    help="What makes the worker look before its second is over. procrastinate needs PostgreSQL.",
)
@common_options
def command(
    workflows: tuple[str, ...],
    slots: int,
    lease: float | None,
    name: str | None,
    grace: float,
    listen: tuple[str, int] | None,
    prune: timedelta | None,
    dispatch: str,
) -> None:
    """Drive the runs that are ready.

    Finds the runs of each WORKFLOW that can be driven and that nobody drives: new runs, runs whose
    process died, due timers and deadlines, responses. Drives each until it waits, sleeps or ends.
    Any number of workers may share a store. Runs that this code cannot continue are left to others.

    SIGTERM or Ctrl-C stops it: supersteps under way may end within the grace, then runs are left at
    their last commit, for other workers. A second signal stops it at once. Logs go to stderr.
    """
    # Before the store is opened: importing may run an event loop of its own, and may fail.
    codes = [load_code(workflow) for workflow in workflows]

    async def serve(storage: BuiltInStorage) -> None:
        from stepwell.admin.retention.policy import Keep  # lazy: only with --prune
        from stepwell.worker.dispatch.choice import load_procrastinate  # lazy: it loads the engine
        from stepwell.worker.health import answering  # lazy: it loads the engine
        from stepwell.worker.shutdown import exit_soon, stopping_on_signals  # lazy: it loads the engine
        from stepwell.worker.worker import Worker  # lazy: it loads the engine

        built = [await code.build() for code in codes]
        policy = None if prune is None else Keep(age=prune)
        dispatcher = load_procrastinate() if dispatch == "procrastinate" else None
        worker = Worker(
            storage, built, slots=slots, lease=lease, name=name, grace=grace, prune=policy, dispatcher=dispatcher
        )
        with stopping_on_signals(worker.stop):
            async with AsyncExitStack() as monitoring:
                if listen is not None:
                    address = answering(*listen, is_ready=worker.is_ready, metrics=worker.metrics)
                    await monitoring.enter_async_context(address)
                await worker.serve()
        exit_soon(0)  # a plain function that still runs in a thread must not keep the process

    logging.basicConfig(level=logging.INFO, format=LOG_FORMAT)
    logging.getLogger("procrastinate").setLevel(logging.WARNING)  # otherwise two lines for each job
    with reserve_stdout():
        run_on_store(serve, make=True, patient=True)
