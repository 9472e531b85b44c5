"""Rules for leases: who drives a run and until when, and fences, their numbers."""
