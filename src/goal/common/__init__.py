"""What every package uses: errors, the base of settings, seeds, escaping, progress.

May import: nothing of goal.
"""
