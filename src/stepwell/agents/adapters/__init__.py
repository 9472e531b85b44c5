"""Agents of other libraries, one module for each; a library is imported here and nowhere else."""
