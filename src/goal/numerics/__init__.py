"""Mathematics without a paper of its own: clustering, matching, the simplex.

May import: common.
"""
