"""Clocks know what dictionaries of the same steps know."""

from __future__ import annotations

import random

import numpy as np

from shardwright.codegen.checks.clocks import Clock

ACTORS = 9


def test_random_steps() -> None:
    draw = random.Random(0)
    pairs = [(Clock(), dict[int, int]()) for _ in range(4)]
    for _ in range(500):
        (clock, known), (other, others) = draw.choice(pairs), draw.choice(pairs)
        if draw.random() < 0.3:
            clock.join(other)
            known |= {each: max(time, known.get(each, 0)) for each, time in others.items()}
        elif draw.random() < 0.5:
            number, time = draw.randrange(ACTORS), draw.randrange(100)
            clock.know(number, time)
            known[number] = max(time, known.get(number, 0))
        else:
            place = pairs.index((clock, known))
            pairs[place] = clock.copy(), dict(known)
            clock.know(0, 1000)  # of which the copy knows nothing
        for made, expected in pairs:
            numbers = np.array(draw.choices(range(ACTORS), k=5))
            assert made.of(numbers).tolist() == [expected.get(each, 0) for each in numbers]
