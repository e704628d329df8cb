"""GOAL+'s discovery and counting, measured on frozen features that are computed once."""
