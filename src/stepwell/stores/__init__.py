"""Back ends: implementations of the storage port. One package each; none knows another."""
