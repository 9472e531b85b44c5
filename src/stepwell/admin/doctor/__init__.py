"""Examines a store for damage and for runs that cannot continue."""
