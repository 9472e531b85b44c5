"""Stores and disks that fail on purpose, for tests of what a workflow or a store does then."""
