"""Measuring programs on allocators: one run, interleaved rounds, and what they say."""
