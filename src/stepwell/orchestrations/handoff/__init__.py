"""Handoff teams: agents that hand a conversation over to each other."""
