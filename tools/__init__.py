"""What makes the site and its pictures; not part of the package."""
