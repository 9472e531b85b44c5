"""What type checkers see of `stepwell.webhooks`. `__init__.py` lists the same names for Python."""

from stepwell.webhooks.deliverer import WebhookDeliverer
from stepwell.webhooks.http_post import DeliveryFailed
from stepwell.webhooks.signature import BadSignature, verify_signature
from stepwell.webhooks.webhook import (
    UnknownWebhook,
    WaitingMessage,
    Webhook,
    add_webhook,
    find_webhook,
    list_deliveries,
    list_webhooks,
    remove_webhook,
    retry_deliveries,
    rotate_secret,
    send_test,
)

__all__ = [
    "BadSignature",
    "DeliveryFailed",
    "UnknownWebhook",
    "WaitingMessage",
    "Webhook",
    "WebhookDeliverer",
    "add_webhook",
    "find_webhook",
    "list_deliveries",
    "list_webhooks",
    "remove_webhook",
    "retry_deliveries",
    "rotate_secret",
    "send_test",
    "verify_signature",
]
