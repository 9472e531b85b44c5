"""What commands print: tables, events, values, and the live view of a run."""
