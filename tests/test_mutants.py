"""Our own tests refuse every bug: the museum's exhibits, and those that are near them."""

import json
import warnings
from pathlib import Path

import killers
import norm_checks
import norm_mutants
import pytest
from museum import EXHIBITS, MUTANTS

from kvbook import museum

CHECKS = {check.__name__: check for check in (*killers.CHECKS, *norm_checks.CHECKS)}
BESIDE = [*MUTANTS, *norm_mutants.MUTANTS]
SUMMARY = Path(__file__).resolve().parent.parent / "_build" / "summary" / "mutants.json"


@pytest.mark.untraced
@pytest.mark.parametrize("check", killers.CHECKS, ids=lambda c: c.__name__)
def test_kvlib_itself_passes(check):
    check()


def test_every_mutant_is_killed():
    """One test for all, so that the score is counted where it is written down."""
    exhibits = [(e, EXHIBITS[e.name]) for e in museum.exhibits()]
    alive = [
        f"{check} does not see: {mutant.name}{why}"
        for mutant, check in exhibits + [(m, m.killed_by) for m in BESIDE]
        if (why := survives(mutant, check)) is not None
    ]
    total = len(exhibits) + len(BESIDE)
    score = {
        "killed": total - len(alive), "total": total, "exhibits": len(exhibits),
        "beside_them": len(BESIDE),
        "line": f"{total - len(alive)} of {total} mutants killed",
    }
    SUMMARY.parent.mkdir(parents=True, exist_ok=True)
    SUMMARY.write_text(json.dumps(score, indent=1) + "\n", encoding="utf-8")
    assert not alive, "\n".join([score["line"], *alive])


def survives(mutant: museum.Mutant, check: str) -> str | None:
    """None where the check refuses the mutant; it must not be for a mutant that is no program."""
    with museum.applied(mutant), warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        try:
            CHECKS[check]()
        except (SyntaxError, NameError, AttributeError, TypeError) as error:
            return f" ({error!r})"
        except (Exception, pytest.fail.Exception):
            return None
    return ""


def test_the_collection_is_in_order():
    names = [m.name for m in BESIDE]
    assert len(set(names)) == len(names) >= 12
    assert EXHIBITS.keys() == set(museum.exhibits().names)
    needed = {m.killed_by for m in MUTANTS} | set(EXHIBITS.values())
    assert {check.__name__ for check in killers.CHECKS} == needed
