"""The kernels' algorithms in NumPy: same tiles, splits and merges, in the same order.

A twin is slow and plain. What it shares with its kernel is the blocking, so that a mistake in the
algorithm shows without a graphics card, and a mistake in the CUDA code shows against the twin.
"""
