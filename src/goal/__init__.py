"""GOAL: continual generalized category discovery on a fixed simplex of class directions."""

__version__ = "0.1.0"
