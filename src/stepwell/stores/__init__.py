"""Back ends: where records, memory and claims are kept. One file each; none knows another."""
