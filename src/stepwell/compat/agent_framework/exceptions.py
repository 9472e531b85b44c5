"""The errors of Agent Framework, under the import root of this package."""

from agent_framework.exceptions import *  # noqa: F403
