"""An engine whose tokens depend on weights, member and context and, as low bits do, on who else is in the batch."""

import hashlib

from springtide.core.sampling import Sampled, SampleStop
from springtide.core.version import PolicyVersion
from springtide.ports.engine import EngineCapabilities, EngineStats, Finished, StaleKv

STOP = 0


class FakeEngine:
    """Implements the Engine port: one token per decode step, every turn is one to three tokens and a stop token."""

    capabilities = EngineCapabilities(owns_residency=True, capacity_tokens=10**6, max_batch=64, max_context=10**6)

    def __init__(self):
        self.weights = ""
        self.number = -1
        self.running = []
        self.sessions = {}
        self.corrupt_next_load = False
        self.refreshed = 0

    def submit(self, requests):
        assert self.number >= 0, "a turn was submitted before any version was published"
        batch = [str(request.member) for request in requests] + [str(turn["request"].member) for turn in self.running]
        for request in requests:
            seed = hashlib.sha256(repr((self.weights, str(request.member), request.tokens, batch)).encode()).digest()
            tokens = [1 + byte % 9 for byte in seed[1 : 2 + seed[0] % 3]] + [STOP]
            self.running.append({"request": request, "tokens": tokens, "done": [], "versions": []})
            self.sessions[request.member] = max(0, self.sessions.get(request.member, self.number))

    def step(self, *, max_decode_steps):
        finished = []
        for _ in range(max_decode_steps):
            for turn in self.running:
                turn["done"].append(turn["tokens"][len(turn["done"])])
                turn["versions"].append(self.number)
            over = [turn for turn in self.running if len(turn["done"]) == len(turn["tokens"])]
            self.running = [turn for turn in self.running if turn not in over]
            finished += [self._finished(turn) for turn in over]
            if finished:
                break
        return finished

    def _finished(self, turn):
        length = len(turn["done"])
        sampled = Sampled(
            tokens=tuple(turn["done"]),
            logprobs=(-1.0,) * length,
            versions=tuple(turn["versions"]),
            stop=SampleStop.STOP_TOKEN,
        )
        return Finished(member=turn["request"].member, turn=turn["request"].turn, sampled=sampled)

    def has_work(self):
        return bool(self.running)

    def cancel(self, member):
        self.running = [turn for turn in self.running if turn["request"].member != member]

    def release(self, member):
        self.cancel(member)
        self.sessions.pop(member, None)

    def demote(self, member, to):
        pass

    def prefetch(self, member):
        pass

    def suspend(self):
        pass

    def hand_over(self, member):
        self.release(member)

    def take_over(self, member, handed):
        return 0

    def load_weights(self, *, number, weights, kv):
        self.weights = weights
        self.number = number
        if self.corrupt_next_load:
            self.corrupt_next_load = False
            self.weights = "corrupt"
        return PolicyVersion(number, self.weights)

    def trust_kv(self, trusted):
        pass

    def stale(self):
        """Every session has two pieces of KV; none of it matters to its tokens."""
        running = {turn["request"].member for turn in self.running}
        return [
            StaleKv(member=member, tokens=2, fresh=0, oldest=int(version))
            for member, version in self.sessions.items()
            if version < self.number and member not in running
        ]

    def refresh(self, member, tokens):
        done = self.sessions[member]
        self.sessions[member] = done + 0.5 if done == int(done) else self.number
        self.refreshed += 1
        return 1

    def probe(self):
        pass

    def stats(self):
        return EngineStats(running=len(self.running), refreshed=self.refreshed)
