"""Learning a stage: the loop of gradient steps, and the learner around it.

May import: common, storage, distributed, data, backbone, bank, numerics, methods, counting,
settings.
"""
