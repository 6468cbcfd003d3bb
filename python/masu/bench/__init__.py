"""Measuring allocators: one run, interleaved rounds, and the benchmark made of them."""
