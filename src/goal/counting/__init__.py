"""How many new classes a stage brings: the estimators, and the counter that uses one.

May import: common, backbone, numerics.
"""
