"""All settings of an experiment, and the recipes that come with goal.

May import: common, storage, data, protocol, backbone, bank, methods.
"""
