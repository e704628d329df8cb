"""Loss terms: pure functions of tensors, each with its paper and equation.

May import: nothing of goal.
"""
