"""The webhooks of a directory: one file per webhook. Their messages are in the files of the runs."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import msgspec

from stepwell.storage.checked_reads import decode_stored
from stepwell.storage.durable_files import safe_name, write_whole
from stepwell.storage.outbox import WebhookRow
from stepwell.stores.files.layout import StoreFolder


class _WebhookFile(msgspec.Struct):
    id: str
    workflow: str | None
    kinds: tuple[str, ...]
    is_stopped: bool
    body: msgspec.Raw


_decode = msgspec.json.Decoder(_WebhookFile).decode


class WebhookFolder:
    """The folder of the webhooks. The methods keep the promises of `Outbox`, and block."""

    def __init__(self, folder: StoreFolder) -> None:
        self._folder = folder
        self._webhooks = folder.root / "webhooks"

    def put(self, webhook: WebhookRow) -> None:
        mode = self._folder.prepare(self._webhooks, creates=True)
        values = msgspec.structs.asdict(webhook) | {"body": msgspec.Raw(webhook.body)}
        write_whole(self._path_of(webhook.id), msgspec.json.encode(_WebhookFile(**values)), mode)

    def remove(self, webhook_id: str) -> bool:
        path = self._path_of(webhook_id)
        was_there = path.exists()
        path.unlink(missing_ok=True)
        return was_there

    def read(self) -> Sequence[WebhookRow]:
        rows: list[WebhookRow] = []
        for path in self._webhooks.glob("*.json"):
            with suppress(FileNotFoundError):  # it was removed just now
                stored = decode_stored(_decode, path.read_bytes(), f"the file {path}")
                rows.append(WebhookRow(stored.id, stored.workflow, stored.kinds, stored.is_stopped, bytes(stored.body)))
        return sorted(rows, key=lambda row: row.id)

    def _path_of(self, webhook_id: str) -> Path:
        return self._webhooks / f"{safe_name(webhook_id)}.json"
