"""The benchmark: its cases, how it runs them, and what it says."""
