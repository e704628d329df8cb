"""Backbones cut in two: a frozen trunk that gives tokens, and the tail that is trained.

May import: common.
"""
