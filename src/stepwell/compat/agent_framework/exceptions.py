"""The errors of Agent Framework, under the door's import root."""

from agent_framework.exceptions import *  # noqa: F403
