"""Every bug of the museum is refused by the check that is there for it."""

import killers
import pytest
from museum import MUTANTS
from mutation import applied

NAMES = [m.name for m in MUTANTS]


@pytest.mark.parametrize("check", killers.CHECKS, ids=lambda c: c.__name__)
def test_kvlib_itself_passes(check):
    check()


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("mutant", MUTANTS, ids=NAMES)
def test_killed(mutant):
    (check,) = (c for c in killers.CHECKS if c.__name__ == mutant.killed_by)
    with applied(mutant):
        try:
            check()
        except Exception as error:
            verdict = error
        else:
            verdict = None
    assert verdict is not None, f"{mutant.killed_by} does not see: {mutant.name}"
    assert not isinstance(verdict, SyntaxError | NameError | AttributeError), verdict


def test_the_museum_is_in_order():
    assert len(set(NAMES)) == len(NAMES) >= 12
    assert {c.__name__ for c in killers.CHECKS} == {m.killed_by for m in MUTANTS}
