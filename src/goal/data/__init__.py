"""Images: where they come from, how they are decoded, checked and cropped.

May import: common, storage.
"""
