"""Trees of guesses: one step of several guesses for the same places equals its paths run alone."""

import numpy as np
import pytest

from kvlib import BlockPool, DenseCache, LayerSpec, PagedCache, QuantizedCache

LAYERS = [LayerSpec(2, 8)] * 2
PARENTS = [-1, 0, 0, 1, 1, 2, -1]
MAKE = {
    "dense": lambda: DenseCache(LAYERS, 4, 64),
    "blocks of 4": lambda: PagedCache(LAYERS, BlockPool(40, 4)),
    "int8": lambda: QuantizedCache(LAYERS, "int8", 4, 64),
    "a window": lambda: PagedCache([LayerSpec(2, 8, window=5)] * 2, BlockPool(40, 4)),
}


@pytest.mark.parametrize("name", MAKE)
def test_a_path_of_a_tree_is_what_it_would_be_alone(name):
    rng = np.random.default_rng(0)
    tree, alone = MAKE[name](), MAKE[name]()
    k, q = (rng.standard_normal((7, n, 8), dtype=np.float32) for n in (2, 4))
    for cache in (tree, alone):
        cache.add("a")
        step = cache.plan(["a"], [7])
        for layer in range(2):
            cache.append(layer, k, k, step)
    n, path = len(PARENTS), [0, 2, 5]
    k, q = (rng.standard_normal((n, heads, 8), dtype=np.float32) for heads in (2, 4))
    step, chain = tree.plan(["a"], [n], parents=[PARENTS]), alone.plan(["a"], [3])
    assert step.positions.tolist() == [7, 8, 8, 9, 9, 9, 7]
    for layer in range(2):
        tree.append(layer, k, k, step)
        alone.append(layer, k[path], k[path], chain)
    for layer in range(2):
        o, expected = tree.run(layer, q, step), alone.run(layer, q[path], chain)
        np.testing.assert_allclose(o[path], expected, atol=1e-5)
    tree.keep("a", path)
    for layer in range(2):
        for x, y in zip(tree.read(layer, "a"), alone.read(layer, "a"), strict=True):
            assert x.tobytes() == y.tobytes()
