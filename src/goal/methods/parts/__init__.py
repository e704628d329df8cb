"""What several methods share: heads, memories, discovery without gradient steps."""
