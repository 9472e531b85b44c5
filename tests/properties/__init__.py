"""What is true whatever comes: of the codec, of state, of what is stored and kept, and of routing."""
