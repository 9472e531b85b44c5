"""Keeps the tokens of recalled responses out of what an instrumented agent reports.

The library reports what a request context lists as used, and adds each response to that list, a recalled one too.
It has no public way to say that nothing was used, so this module, and no other, reads the list where it is.
"""

from __future__ import annotations

import warnings
from dataclasses import fields, replace
from importlib.metadata import version

from pydantic_ai.models import ModelRequestContext
from pydantic_ai.usage import RequestUsage

_LEDGER = "_usage_response_ledger"


def check_library() -> None:
    """Warn if this version of the library keeps the list elsewhere: agents work, but their tokens are counted twice."""
    if _LEDGER not in {field.name for field in fields(ModelRequestContext)}:
        warnings.warn(
            f"pydantic-ai {version('pydantic-ai-slim')} does not tell Stepwell which responses an instrumented agent "
            f"reports: after a restart, the tokens of recalled requests are reported again. Update Stepwell",
            stacklevel=3,
        )


def forget_usage(request_context: ModelRequestContext) -> None:
    """Report no tokens for a request whose response was recalled.

    The usage of the run, which its limits are about, is counted already.
    """
    ledger = getattr(request_context, _LEDGER, None)
    # `check_library` has warned.
    if ledger is not None:
        ledger.responses[:] = [replace(response, usage=RequestUsage()) for response in ledger.responses]
