"""A store in a schema of a PostgreSQL database, which many machines may use at once."""
