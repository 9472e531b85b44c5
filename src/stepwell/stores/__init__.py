"""Back ends: one package for each place a run can be stored. None of them imports another."""
