"""A sweep with early stop in Python: each round trains longer and keeps the better half, until one is good enough.

perdure deploy examples/flow/sweep.py --image localhost/perdure:dev --mount
perdure start --type sweep --task-queue lab --input '{"rates": [0.01, 0.1, 1.0, 5.0]}' --name sweep --wait
perdure result sweep
"""

from dataclasses import dataclass

import perdure.flow as pf
from perdure import activity

lab = pf.Environment("lab", cpu="10m", memory="64Mi")


@dataclass
class Trial:
    """A learning rate, and the score that it has reached."""

    lr: float
    epochs: int
    score: float


@lab.activity(timeout="1h", heartbeat="1m", retries=3)
def train(lr: float, epochs: int) -> Trial:
    """Train a model, and measure it; a real one saves its weights in a bucket."""
    score = 0.0
    for epoch in range(epochs):
        score += (1 - score) * min(lr, 1 / lr) / 2
        activity.heartbeat({"epoch": epoch, "score": score})
    return Trial(lr, epochs, round(score, 4))


@lab.flow
async def sweep(rates: list[float], target: float = 0.9, epochs: int = 2) -> Trial:
    """Find a learning rate whose model reaches the target; otherwise return the best."""
    while True:
        trials = await pf.map(train, rates, epochs=epochs, at_most=4)
        trials.sort(key=lambda trial: trial.score, reverse=True)
        if trials[0].score >= target or len(trials) == 1:
            return trials[0]
        rates = [trial.lr for trial in trials[: (len(trials) + 1) // 2]]
        epochs *= 2
