"""The commands, a file each. A file is read when its command is called."""
