"""Emits what happens in a drive: to the reader of its stream, to watchers in this process, to OpenTelemetry."""
