"""Losses: pure functions of tensors, one idea per file."""
