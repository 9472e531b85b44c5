"""A schema of a PostgreSQL database."""
