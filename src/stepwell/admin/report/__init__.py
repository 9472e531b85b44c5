"""A run as an HTML page that works offline, and a workflow as an SVG."""
