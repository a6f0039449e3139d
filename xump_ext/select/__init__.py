"""Which selectors a message hits, which of them may take it, and what waits for them (rules 2, 4, 5, 6, 8)."""
