"""The pictures of the docs, drawn by code: `python -m tools.pictures` writes them into `docs/pictures`."""
