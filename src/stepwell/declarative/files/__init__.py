"""Definitions as JSON and YAML files: read with line numbers, written, described by a schema."""
