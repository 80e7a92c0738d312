"""The pytest fixture `equivalent`: a test that fails with the shrunk witness.

    def test_attention(equivalent):
        equivalent(attention, kernel="linear_attention")"""
from __future__ import annotations

from typing import Any, Protocol

import pytest

from . import CommandError, Result, check

OPTIONS = {"preset": "live or smoke, where a test does not say", "budget": "time at most for a verdict, such as 30s, where a test does not say"}


class Equivalent(Protocol):
    def __call__(self, fn: Any, kernel: str = "linear_attention", **options: Any) -> Result: ...


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("fractus-verify")
    for option, meaning in OPTIONS.items():
        group.addoption(f"--fractus-{option}", metavar=option.upper(), help=meaning)
        parser.addini(f"fractus_{option}", meaning)


@pytest.fixture(scope="session")
def equivalent(pytestconfig: pytest.Config) -> Equivalent:
    """equivalent(fn, kernel=...): the verdict, where it is EQUIVALENT; else the test fails with its witness or reason. Options
    as of fractus_verify.check."""
    defaults = {option: value for option in OPTIONS
                if (value := pytestconfig.getoption(f"fractus_{option}") or pytestconfig.getini(f"fractus_{option}"))}

    def judge(fn: Any, kernel: str = "linear_attention", **options: Any) -> Result:
        try:
            result = check(fn, kernel, **{**defaults, **options})
        except (CommandError, TypeError, ValueError) as error:
            pytest.fail(f"no verdict: {error}", pytrace=False)
        if not result.equivalent:
            pytest.fail(result.message, pytrace=False)
        return result

    return judge
