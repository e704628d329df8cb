"""How fast training from banked tokens is, beside the plain way: `python -m benchmarks.speed`."""
