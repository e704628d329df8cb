"""Pages that open from disk: the document, galleries, styles and scripts that all share.

May import: nothing of goal.
"""
