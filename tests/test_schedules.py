"""Schedules against values computed by hand."""

import pytest

from ob2i_tf import schedules


@pytest.mark.parametrize(
    'agent_steps, epsilon',
    [
        (0, 0.9),
        (1, 0.8993),
        (250, 0.725),
        (500, 0.55),
        (999, 0.2007),
        (1000, 0.2),
        (10**9, 0.2),
    ],
)
def test_linear_falls_to_its_final_value(agent_steps, epsilon):
    assert schedules.linear(agent_steps, start=0.9, final=0.2, steps=1000) == pytest.approx(epsilon)


@pytest.mark.parametrize(
    'agent_steps, epsilon',
    [
        (0, 0.8),
        (100, 0.648),
        (500, 0.2),
        (900, 0.008),
        (1000, 0.0),
        (10**9, 0.0),
    ],
)
def test_quadratic_is_a_square_that_ends_at_0(agent_steps, epsilon):
    assert schedules.quadratic(agent_steps, start=0.8, steps=1000) == pytest.approx(epsilon)
