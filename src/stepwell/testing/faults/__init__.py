"""Stores and disks that fail on purpose."""
