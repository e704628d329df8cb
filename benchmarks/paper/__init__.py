"""What the benchmarks that repeat the GOAL paper's tables share: rows, running, and the page."""
