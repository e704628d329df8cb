"""Who sees which image when: stages as index arrays, and rehearsals.

May import: common, data.
"""
