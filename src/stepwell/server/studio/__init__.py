"""The page: static files, and a demo store for those who have none yet."""
