"""The documentation site: what of it is made from code and tables, and how it is checked."""
