"""The token bank: what the frozen trunk computes, computed once and kept on disk.

May import: common, storage, distributed, data, backbone.
"""
