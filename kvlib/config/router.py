"""How a mixture of experts is routed, as a config states it."""

from __future__ import annotations

from typing import NamedTuple

from kvlib.config.keys import positive_float, positive_int
from kvlib.config.shape import Experts


class Router(NamedTuple):
    """How scores become a token's experts and their shares. The defaults are a plain softmax.

    sigmoid      each expert is scored alone, by σ; a bias counts for the choice and not for the
                 share (DeepSeek-V3, arXiv:2412.19437, section 2.1.2)
    groups       experts lie in so many groups of equal size, and those of a token
    best_groups  come from its best few. A group is as good as its best expert (DeepSeek-V2,
                 arXiv:2405.04434, section 2.2.2), with `sigmoid` as its two best together
    scaling      the factor of all shares
    """

    sigmoid: bool = False
    groups: int = 1
    best_groups: int = 1
    scaling: float = 1.0


def check_router(router: Router, experts: Experts | None) -> None:
    """Raise ValueError, naming the config's key, for a router that these experts cannot have."""
    positive_int("router.groups", router.groups, "n_group")
    positive_int("router.best_groups", router.best_groups, "topk_group")
    positive_float("router.scaling", router.scaling, "routed_scaling_factor")
    if experts is None:
        if router != Router():
            raise ValueError(f"router is {router}, needed: experts to route to")
        return
    count, groups, best = experts.num_experts, router.groups, router.best_groups
    size = count // groups
    if count % groups or (router.sigmoid and groups > 1 and size < 2):
        least = " of at least 2" if router.sigmoid else ""
        raise ValueError(
            f"router.groups (n_group) is {groups}, needed: a number that divides {count} experts "
            f"into groups{least}"
        )
    if best > groups or experts.per_token > best * size:
        raise ValueError(
            f"router.best_groups (topk_group) is {best}, needed: at most {groups} groups, and "
            f"enough that {experts.per_token} experts fit into groups of {size}"
        )
