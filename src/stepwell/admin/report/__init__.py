"""A run as a page that is read offline, and a workflow as an SVG."""
