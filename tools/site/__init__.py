"""The site: pages made from code (`pages`), and what MkDocs calls while it builds (`hook`)."""
