"""`stepwell studio`: the page, in a browser of this machine."""

from __future__ import annotations

import logging
import secrets
import tempfile
import webbrowser
from contextlib import ExitStack
from pathlib import Path

import click

from stepwell.cli.code_loader import load_code
from stepwell.cli.settings import LOG_FORMAT, Settings, common_options
from stepwell.cli.store_server import NOTHING_DRIVEN, serve_store
from stepwell.cli.stores.session import run_on_store
from stepwell.cli.type_names import BuiltInStorage
from stepwell.cli.views.output import print_note


@click.command("studio")
@click.option(
    "--work",
    "workflows",
    metavar="MODULE:WORKFLOW",
    multiple=True,
    help="Let the page start this workflow, and run a worker that drives its runs. Repeatable.",
)
@click.option("--demo", is_flag=True, help="Make a store with runs to look at, and a worker that moves them.")
@click.option("--port", type=click.IntRange(0, 65535), default=0, metavar="PORT", help="Default: a free one.")
@click.option("--no-browser", is_flag=True, help="Only print the address.")
@common_options
def command(workflows: tuple[str, ...], demo: bool, port: int, no_browser: bool) -> None:
    """See, answer and move runs in a browser.

    Serves the page on this machine only, prints its address with a new token, and opens it. It drives
    no run, except those of --work and of --demo. SIGTERM or Ctrl-C stops it.
    """
    codes = [load_code(workflow) for workflow in workflows]
    settings = Settings.current()
    if demo and settings.store is not None:
        raise click.UsageError("--demo makes a store of its own; leave out --store, or --demo")

    def announce(address: str) -> None:
        click.echo(address)
        if not codes and not demo:
            print_note(NOTHING_DRIVEN)
        if not no_browser:
            webbrowser.open(address)

    async def work(storage: BuiltInStorage) -> None:
        built = [await code.build() for code in codes]
        if demo:
            from stepwell.server.studio.demo.runs import build_served, make_runs  # lazy: only with --demo

            print_note("making the runs of the demo ...")
            await make_runs(storage, Path(settings.store or ""))
            built += build_served(storage)
        await serve_store(
            storage, built, secret=secrets.token_urlsafe(24), host="127.0.0.1", port=port, announce=announce
        )

    logging.basicConfig(level=logging.WARNING, format=LOG_FORMAT)
    with ExitStack() as stack:
        if demo:
            folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="stepwell-demo-"))
            settings.store = str(Path(folder, "demo.db"))
        run_on_store(work, make=True, patient=True)
