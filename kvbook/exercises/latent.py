"""Checkers of the chapter on latent attention and recurrent states.

The multiplications of both forms are in :mod:`kvbook.exercises.latent_count`, attention to the
latent vectors themselves is in :mod:`kvbook.exercises.latent_absorbed`, and a state that can go
back is in :mod:`kvbook.exercises.latent_snapshots`.
"""

from __future__ import annotations

from kvbook.exercises.latent_absorbed import check_absorbed
from kvbook.exercises.latent_count import check_multiplications
from kvbook.exercises.latent_snapshots import check_states

__all__ = ["check_absorbed", "check_multiplications", "check_states"]
