"""Magentic teams: a manager plans the work, tracks its progress, and replans when it stalls."""
