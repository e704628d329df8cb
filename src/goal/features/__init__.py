"""One frozen feature per image: how they are computed, kept in a feature store, and read.

May import: common, storage, data, backbone.
"""
