"""Speed and accuracy, each a command that prints a table or a ratio."""
