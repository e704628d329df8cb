"""Files on disk: written whole or not at all, locked, sealed and read with care.

May import: common.
"""
