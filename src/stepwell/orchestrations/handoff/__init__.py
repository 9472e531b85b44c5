"""Agents that hand a conversation over to each other."""
