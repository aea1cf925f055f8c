"""Reading config.json: the one parser that `kvlib.costs` and `kvlib.model` share. Needs no NumPy.

`read`      a config.json → a `Shape` (how large a model is), or a shape with the fields of
            `ModelConfig` that say how a forward pass computes
`families`  the registry, and a file for each family or group of relatives; it says how to add one
`door`      reads a file of JSON within limits of size, depth and digits
`keys`      typed access to one JSON object; errors name file, key, value and what was needed
`parts`     what several families state alike: sizes, windows, experts, activations, end tokens
`table`     the keys that no family reads: harmless, or with one harmless value
`ranges`    how large each number may be
`words`     how an error shows what a file holds
`quantised` how weights and cache are stored, as config.json or a file beside it says
`rope`      rotary position embedding: what is known of it, and how a config.json states it
"""
