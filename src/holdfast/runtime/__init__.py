"""The moving parts: tasks, threads and clocks live here and nowhere below."""
