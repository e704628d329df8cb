"""Reports about runs: tables, figures and one page.

May import: common, storage, settings, pages, evaluation, runs.
"""
