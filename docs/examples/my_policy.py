"""A policy of one's own: who leaves the device first when there is no room. Run it to compare it with the others."""

from springtide.scheduling.costs import CurrentCosts
from springtide.scheduling.retention import Hold, Load, Recency, Session
from springtide.simulation.cluster import cluster
from springtide.simulation.simulate import simulate
from springtide.simulation.strategy import Strategy
from springtide.simulation.workload import preset


class CheapestFirst(Recency):
    """The session whose KV takes least time to compute again leaves first, however long it has paused."""

    def __init__(self, costs: CurrentCosts) -> None:
        self.costs = costs

    def hold(self, session: Session, load: Load, now: float) -> Hold:
        return Hold(until=now, order=self.costs().recompute(session.kv))


def compare(groups_per_step: int = 64, steps: int = 4) -> dict[str, float]:
    work = preset("tau").model_copy(update={"groups_per_step": groups_per_step})
    found = {}
    for name in ("lru", "lru-ordered", "break-even", "mine"):
        strategy = Strategy(kv="keep", retention="lru" if name == "mine" else name, rollout_ranks=4)
        policy = CheapestFirst if name == "mine" else None
        run = simulate(work, cluster("h100-14b"), strategy, seed=0, steps=steps, warm_steps=2, policy=policy)
        found[name] = run.goodput
        print(f"{name:12} {run.goodput:8,.0f} trained tokens per second, KV hit rate {run.hit_rate:.3f}")
    return found


if __name__ == "__main__":
    compare()
