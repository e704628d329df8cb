"""``python -m goal``."""

from goal.cli import main

if __name__ == "__main__":
    main()
