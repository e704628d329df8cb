"""Scores: where a method's answers meet the truth, and what people are shown of it.

May import: common, storage, data, protocol, backbone, numerics, methods, pages.
"""
