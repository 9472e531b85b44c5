"""A team that a manager leads: it plans, watches the progress, and plans anew if there is none."""
