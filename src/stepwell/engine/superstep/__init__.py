"""One superstep: all its handler calls, the conditions of edges, and what it leads to."""
