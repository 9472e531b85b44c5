"""Definitions as JSON and YAML files: read with line numbers, written, and described by a schema."""
