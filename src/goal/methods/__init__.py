"""Methods: one file per paper.

`registry` lists them, `base` says what a method is, `parts` holds what several share.

May import: common, distributed, backbone, numerics, losses.
"""
