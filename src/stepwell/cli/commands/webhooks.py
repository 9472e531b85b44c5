"""`stepwell webhooks`: tell other programs of requests and of runs that end."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable
from dataclasses import asdict
from typing import Any, TypeVar

import click

from stepwell import webhooks
from stepwell.cli.failures import NOT_FOUND, USAGE, CommandFailed, command_line
from stepwell.cli.settings import COMMON, common_options, json_option
from stepwell.cli.stores.session import run_on_store
from stepwell.cli.type_names import BuiltInStorage
from stepwell.cli.views.output import print_document, print_note, print_table
from stepwell.cli.views.text import format_moment
from stepwell.errors import DefinitionError

T = TypeVar("T")
_SECRET = "STEPWELL_WEBHOOK_SECRET"


@click.group("webhooks")
@common_options
def command() -> None:
    """Tell other programs of requests and of runs that end.

    A webhook is an address that gets a signed message when a request is asked or expires, and when a
    run is completed, fails or is cancelled. The messages are stored with the commits that cause them
    and sent by a worker or a server of the store, until the receiver accepts them.
    """


def _on_store(work: Callable[[BuiltInStorage], Awaitable[T]], *, make: bool = False) -> T:
    try:
        return run_on_store(work, make=make)
    except webhooks.UnknownWebhook as error:
        raise CommandFailed(error.id, str(error), command_line("webhooks", "list"), NOT_FOUND) from error
    except DefinitionError as error:
        raise CommandFailed(error.id, str(error), code=USAGE) from error


@command.command("add", epilog=COMMON)
@click.argument("url")
@click.option("--workflow", metavar="NAME", help="Only runs of this workflow.")
@click.option("--kind", "kinds", metavar="KIND", multiple=True, help="Only messages of this kind; may be repeated.")
@click.option("--allow-http", is_flag=True, help="Send without encryption to another machine.")
@json_option
@common_options
def add(url: str, workflow: str | None, kinds: tuple[str, ...], allow_http: bool, json: bool) -> None:
    """Add a webhook, and print the secret that signs its messages.

    Kinds: request.asked, request.expired, run.completed, run.failed, run.cancelled. The secret is
    made up, unless the environment variable STEPWELL_WEBHOOK_SECRET holds one.
    """

    async def work(storage: BuiltInStorage) -> None:
        webhook = await webhooks.add_webhook(
            storage, url, workflow=workflow, kinds=kinds, secret=os.environ.get(_SECRET), allow_http=allow_http
        )
        _print_secret(webhook, json)

    _on_store(work, make=True)


@command.command("list", epilog=COMMON)
@json_option
@common_options
def list_(json: bool) -> None:
    """List the webhooks of a store."""

    async def work(storage: BuiltInStorage) -> None:
        listed = await webhooks.list_webhooks(storage)
        waiting = [len(await webhooks.list_deliveries(storage, webhook.id)) for webhook in listed]
        if json:
            print_document(webhooks=list(map(_to_dict, listed, waiting)))
        elif listed:
            columns = ["webhook", "url", "workflow", "kinds", "waiting", "status"]
            print_table(columns, list(map(_make_row, listed, waiting)))
        else:
            print_note("the store has no webhooks")

    _on_store(work)


@command.command("remove", epilog=COMMON)
@click.argument("webhook")
@common_options
def remove(webhook: str) -> None:
    """Remove a webhook, with what it has not delivered."""

    async def work(storage: BuiltInStorage) -> None:
        await webhooks.remove_webhook(storage, webhook)
        print_note(f"webhook {webhook} is removed")

    _on_store(work)


@command.command("rotate", epilog=COMMON)
@click.argument("webhook")
@json_option
@common_options
def rotate(webhook: str, json: bool) -> None:
    """Replace the secret of a webhook.

    Messages are signed with the new secret and with the one before it, until this is called again. The
    new one is made up, unless the environment variable STEPWELL_WEBHOOK_SECRET holds one.
    """

    async def work(storage: BuiltInStorage) -> None:
        _print_secret(await webhooks.rotate_secret(storage, webhook, os.environ.get(_SECRET)), json)

    _on_store(work)


@command.command("test", epilog=COMMON)
@click.argument("webhook")
@common_options
def test(webhook: str) -> None:
    """Send a message of the type `test` now, once."""

    async def work(storage: BuiltInStorage) -> None:
        print_note(f"the receiver accepted {await webhooks.send_test(storage, webhook)}")

    _on_store(work)


@command.command("deliveries", epilog=COMMON)
@click.argument("webhook", required=False)
@json_option
@common_options
def deliveries(webhook: str | None, json: bool) -> None:
    """List the messages that are not delivered yet."""

    async def work(storage: BuiltInStorage) -> None:
        waiting = await webhooks.list_deliveries(storage, webhook)
        if json:
            print_document(deliveries=[asdict(delivery) for delivery in waiting])
        elif waiting:
            columns = ["webhook", "kind", "run", "attempts", "next attempt", "last error"]
            print_table(columns, [_delivery_row(delivery) for delivery in waiting])
        else:
            print_note("everything is delivered")

    _on_store(work)


@command.command("retry", epilog=COMMON)
@click.argument("webhook")
@common_options
def retry(webhook: str) -> None:
    """Send what is not delivered again, now.

    A webhook that was stopped is started.
    """

    async def work(storage: BuiltInStorage) -> None:
        count = await webhooks.retry_deliveries(storage, webhook)
        print_note(f"{count} messages of webhook {webhook} are due now; a worker or a server sends them")

    _on_store(work)


def _print_secret(webhook: Any, json: bool) -> None:
    if json:
        print_document(id=webhook.id, url=webhook.url, secret=webhook.secrets[0])
    else:
        print_table(["webhook", "secret"], [[webhook.id, webhook.secrets[0]]])


def _make_row(webhook: Any, waiting: int) -> list[str]:
    status = "active" if webhook.stopped_because is None else f"stopped: {webhook.stopped_because}"
    return [webhook.id, webhook.url, webhook.workflow or "all", " ".join(webhook.kinds) or "all", str(waiting), status]


def _to_dict(webhook: Any, waiting: int) -> dict[str, Any]:
    return {
        "id": webhook.id,
        "url": webhook.url,
        "workflow": webhook.workflow,
        "kinds": list(webhook.kinds),
        "waiting": waiting,
        "stopped_because": webhook.stopped_because,
    }


def _delivery_row(delivery: Any) -> list[str]:
    following = "set aside" if delivery.next_attempt is None else format_moment(delivery.next_attempt)
    row = [delivery.webhook_id, delivery.kind, delivery.run_id, str(delivery.attempts), following]
    return [*row, delivery.last_error or ""]
