"""Agents of other libraries, one module each: the only modules that import those libraries."""
