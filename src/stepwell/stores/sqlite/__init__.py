"""A store in a SQLite file, which several processes of one machine may use at once."""
