"""Webhooks: messages to other programs when a request is asked or expires, and when a run ends or fails.

A store writes the messages in the commits that cause them (`storage.outbox`). Here they are sent,
by a worker or a server, whichever runs; a lease ensures that one process does it at a time.

    webhook.py     webhooks as users see them, and what they do with them
    destination.py which addresses are allowed
    signature.py   signing, and checking a signature (Standard Webhooks)
    payload.py     a message as it is sent
    http_post.py   one HTTP request, with limits
    deliverer.py   sends what is due, in order, until it is delivered
"""

from stepwell.codec import modules as _modules

_HOMES = {
    "BadSignature": "webhooks.signature",
    "WaitingMessage": "webhooks.webhook",
    "DeliveryFailed": "webhooks.http_post",
    "UnknownWebhook": "webhooks.webhook",
    "Webhook": "webhooks.webhook",
    "WebhookDeliverer": "webhooks.deliverer",
    "add_webhook": "webhooks.webhook",
    "list_deliveries": "webhooks.webhook",
    "find_webhook": "webhooks.webhook",
    "list_webhooks": "webhooks.webhook",
    "remove_webhook": "webhooks.webhook",
    "retry_deliveries": "webhooks.webhook",
    "rotate_secret": "webhooks.webhook",
    "send_test": "webhooks.webhook",
    "verify_signature": "webhooks.signature",
}

__getattr__, __dir__, __all__ = _modules.export_lazily(__name__, _HOMES)
