"""Experiments: one in a folder of its own, and grids of them.

May import: common, storage, distributed, data, protocol, backbone, bank, methods, settings,
learning, evaluation.
"""
