"""`stepwell serve`: answer over HTTP."""

from __future__ import annotations

import logging
import os
import secrets
from typing import BinaryIO

import click

from stepwell.cli.code_loader import load_code
from stepwell.cli.server_errors import TOKEN
from stepwell.cli.settings import LOG_FORMAT, common_options
from stepwell.cli.store_server import NOTHING_DRIVEN, serve_store
from stepwell.cli.stores.session import run_on_store
from stepwell.cli.type_names import BuiltInStorage
from stepwell.cli.views.output import print_note


@click.command("serve")
@click.option(
    "--work",
    "workflows",
    metavar="MODULE:WORKFLOW",
    multiple=True,
    help="Let clients start this workflow, and run a worker that drives its runs. Repeatable.",
)
@click.option("--host", default="127.0.0.1", show_default=True, metavar="HOST", help="The address to listen at.")
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=8642,
    show_default=True,
    metavar="PORT",
    help="The port to listen at; 0 takes a free one.",
)
@click.option("--token", metavar="TOKEN", help=f"The token of clients. Default: ${TOKEN}, or a new one.")
@click.option("--no-token", is_flag=True, help="Let everybody on this machine in; only on a loopback address.")
@click.option("--allow-host", "hosts", multiple=True, metavar="NAME", help="A name that clients use. Repeatable.")
@click.option("--allow-origin", "origins", multiple=True, metavar="URL", help="A site whose pages may use it.")
@click.option("--url", metavar="URL", help="Where people reach it: messages of webhooks then hold response links.")
@click.option(
    "--key-file",
    type=click.File("rb"),
    metavar="FILE",
    help="A file with the secret that response links are signed with. Default: derived from the token.",
)
@common_options
def command(
    workflows: tuple[str, ...],
    host: str,
    port: int,
    token: str | None,
    no_token: bool,
    hosts: tuple[str, ...],
    origins: tuple[str, ...],
    url: str | None,
    key_file: BinaryIO | None,
) -> None:
    """Answer over HTTP.

    Serves the runs of the store: the HTTP API at /api/v1, event streams, and response links. Prints
    its address, with the token. It drives no run, except those of --work. Any number of servers may
    share a store, also with programs and workers. SIGTERM or Ctrl-C stops it.
    """
    if token is not None and no_token:
        raise click.UsageError("pass --token or --no-token, not both")
    key = None if key_file is None else key_file.read().strip()
    codes = [load_code(workflow) for workflow in workflows]
    secret = None if no_token else token or os.environ.get(TOKEN) or secrets.token_urlsafe(24)

    def announce(address: str) -> None:
        click.echo(address)
        if not codes:
            print_note(NOTHING_DRIVEN)

    async def work(storage: BuiltInStorage) -> None:
        built = [await code.build() for code in codes]
        await serve_store(
            storage,
            built,
            secret=secret,
            host=host,
            port=port,
            announce=announce,
            hosts=hosts,
            origins=origins,
            url=url,
            key=key,
        )

    logging.basicConfig(level=logging.INFO, format=LOG_FORMAT)
    logging.getLogger("mcp").setLevel(logging.WARNING)  # it announces itself
    run_on_store(work, make=True, patient=True)
