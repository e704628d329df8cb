"""A model of one's own images: a folder that lives for months.

`goal.model.life.Model` is its life; `goal.estimator.Goal` is the same in scikit-learn's manners.
"""
