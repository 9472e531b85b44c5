"""What commands print: tables, events, values and the picture of a run under way."""
