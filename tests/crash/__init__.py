"""Real processes, real signals: nothing told is lost, nothing durable is done again."""
