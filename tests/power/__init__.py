"""What is left after a power failure: by the recorded system calls of a real process."""
