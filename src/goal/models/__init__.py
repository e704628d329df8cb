"""A model of one's own images: a folder that lives for months.

`model.Model` is its life; `estimator.Goal` is the same as a scikit-learn estimator.

May import: common, storage, distributed, data, backbone, bank, features, numerics, methods,
settings, learning, pages, evaluation.
"""
