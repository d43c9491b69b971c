"""Faults of requests, drawn from the seed."""

from dataclasses import dataclass, field
from random import Random

import msgspec

from perdure.simulation.cluster.loop import ClusterLoop


class Fate(msgspec.Struct, frozen=True, kw_only=True):
    """The fate of one request. Times are in seconds."""

    arrives_after: float
    answered_after: float
    refused: int = 0
    """HTTP status with which it is refused before anything is done; 0: it is not."""
    dropped: bool = False
    """It never arrives, because the connection breaks."""
    unanswered: bool = False
    """It is done, and its answer is lost."""
    breaks: bool = False
    """Its answer is lost because the connection breaks; otherwise, the client waits for it too long."""
    survives: bool = True
    """It arrives although its sender dies before."""


@dataclass
class Faults:
    """Draws the fate of each request."""

    loop: ClusterLoop
    random: Random
    rate: float
    """Share of requests that fail, half of them after they were done."""
    delay: float = 0.02
    """How long a request and its answer travel at most, in seconds."""
    outages: list[tuple[float, float]] = field(default_factory=list)
    """The times at which the API server does not respond."""
    broken: set[str] = field(default_factory=set)
    """Paths of objects that cannot be read or written."""
    slow: dict[tuple[str, str], float] = field(default_factory=dict)
    """How long the answers to some requests take, in seconds, by method and path."""

    def fate(self, method: str, path: str) -> Fate:
        """Of the next request."""
        random = self.random
        slow = random.random() < self.rate / 5
        usual = (0.001, self.delay)
        before, after = random.uniform(*usual), random.uniform(*(0.1, 5.0) if slow else usual)
        after = self.slow.get((method, path), after)
        draw, survives = random.random(), random.random() < 0.5
        if any(start <= self.loop.time() + before < end for start, end in self.outages):
            return Fate(arrives_after=before, answered_after=after, refused=503, survives=survives)
        if path in self.broken:
            return Fate(arrives_after=before, answered_after=after, refused=500, survives=survives)
        if draw < self.rate * 0.35:
            status = random.choice([429, 500, 503, 504])
            return Fate(arrives_after=before, answered_after=after, refused=status, survives=survives)
        if draw < self.rate * 0.5:
            return Fate(arrives_after=before, answered_after=random.uniform(0.1, 5), dropped=True)
        if draw < self.rate:
            late, breaks = random.uniform(0.1, 5), draw < self.rate * 0.75
            return Fate(arrives_after=before, answered_after=late, unanswered=True, breaks=breaks, survives=survives)
        return Fate(arrives_after=before, answered_after=after, survives=survives)
