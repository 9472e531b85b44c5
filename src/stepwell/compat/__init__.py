"""Other frameworks' names and manners, on Stepwell's engine: one package for each framework."""
