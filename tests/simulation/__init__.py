"""The whole engine in a world that is made from a number: graphs, handlers, schedules, faults."""
