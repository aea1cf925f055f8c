"""The kernels' algorithms in NumPy: same tiles, splits and merges, in the same order.

A mistake in the algorithm shows in the twin without a GPU; one in the CUDA code shows against it.
"""
