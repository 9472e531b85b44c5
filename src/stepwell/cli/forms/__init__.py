"""Forms on a terminal: responses typed field by field, checked against a JSON schema."""
