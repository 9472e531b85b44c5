"""The front door: build a workflow, run it, read what came of it."""
