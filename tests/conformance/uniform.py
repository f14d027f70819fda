"""A Hypothesis backend whose integers are all as likely as one another.

Hypothesis' own backend looks for bugs near bounds, near zero and near what it has tried: good for one function of a few
numbers. A case here is made of hundreds of small choices, and such a bias makes most clusters empty or alike.
"""

from __future__ import annotations

from typing import TypeVar

from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st
from hypothesis.internal.conjecture.providers import AVAILABLE_PROVIDERS, HypothesisProvider

BACKEND = "uniform"

T = TypeVar("T")


class UniformProvider(HypothesisProvider):
    """Registered under the name BACKEND."""

    def draw_integer(
        self,
        min_value: int | None = None,
        max_value: int | None = None,
        *,
        weights: dict[int, float] | None = None,
        shrink_towards: int = 0,
    ) -> int:
        random = self._cd._random if self._cd else None
        if min_value is None or max_value is None or random is None:
            return super().draw_integer(min_value, max_value, weights=weights, shrink_towards=shrink_towards)
        return random.randint(min_value, max_value)


AVAILABLE_PROVIDERS[BACKEND] = UniformProvider


def examples(strategy: st.SearchStrategy[T], number: int, seed_text: str) -> list[T]:
    """Draws that many values, the same for the same text."""
    drawn: list[T] = []
    drawing = settings(
        max_examples=number,
        phases=[Phase.generate],
        backend=BACKEND,
        database=None,
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )
    seed(seed_text)(drawing(given(case=strategy)(lambda case: drawn.append(case))))()
    return drawn[:number]
