"""Tests of goal.data."""
