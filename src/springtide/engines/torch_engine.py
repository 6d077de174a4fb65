"""The embedded engine: continuous batching over sessions that keep their KV between turns.

Each pass takes every running sequence: one token of those that decode, and up to `prefill_chunk` tokens, in order of
submission, of those whose context is not computed yet. When nothing is left to prefill, decode steps run without
returning to the scheduler until a turn finishes and none waits for its place.

Invariants: the tokens reserved by blocks never exceed the capacity; a turn goes on after any move, preemption or
weight update as if nothing had happened; the same submissions and steps give the same tokens, as no decision depends
on time, on memory addresses or on the order of a set.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import torch

from springtide.core.member import Member
from springtide.core.sampling import Sampled, SampleRequest, SampleStop
from springtide.core.version import PolicyVersion
from springtide.engines.blocks import Blocks
from springtide.engines.compaction import compact
from springtide.engines.config import TorchEngineConfig
from springtide.engines.counters import Counters
from springtide.engines.group import Row, row_order
from springtide.engines.network import Network
from springtide.engines.probe import Case, Probe
from springtide.engines.residency import ResidentSessions
from springtide.engines.sampling import Draws
from springtide.engines.session import Session, Turn
from springtide.engines.storage import Storage
from springtide.engines.turns import Turns
from springtide.policy.random import stream_key
from springtide.ports.engine import EngineCapabilities, EngineStats, Finished, HandedOver, KvPolicy, StaleKv


class TorchEngine:
    """Implements the `Engine` port on one device, the model's."""

    def __init__(self, model: Any, config: TorchEngineConfig, seed: int) -> None:
        """Takes over `model`, a `transformers` causal LM that nothing else uses: its attention is switched and its
        weights are overwritten by `load_weights`. `seed` is the run's. UsageError if the engine cannot run the model.
        """
        self._network = Network(model, native=config.native_kernels)
        self._seed = seed
        self._version = self._dropped_at = 0
        self._submitted = 0
        self._poisoned = False
        self._chunk = config.prefill_chunk
        self._gap = config.kv_gap
        self._trusted = True
        self._probe = Probe(self._network, seed=seed, share=config.probe_share, chunk=config.prefill_chunk)
        blocks = Blocks(config.capacity_tokens)
        self._blocks = blocks
        self._storage = Storage(
            self._network.layers, blocks.capacity, device=self._network.device, dtype=self._network.dtype
        )
        self.capabilities = EngineCapabilities(
            owns_residency=True,
            capacity_tokens=blocks.capacity,
            max_batch=config.max_batch,
            max_context=min(self._network.config.max_position_embeddings, blocks.largest),
        )
        self._counters = Counters()
        self._residents = ResidentSessions(self._storage, blocks, host_capacity=config.host_capacity_tokens)
        self._turns = Turns(
            self._residents,
            self._counters,
            max_batch=config.max_batch,
            max_context=self.capabilities.max_context,
        )

    def submit(self, requests: list[SampleRequest]) -> None:
        for request in requests:
            self._check(request)
        for request in requests:
            session = self._residents.get(request.member) or self._new_session(request.member)
            assert session.turn is None, f"{request.member} already has a turn"
            session.present(request.tokens)
            session.turn = Turn(request, self._submitted)
            session.turn.probed = self._is_probed(session)
            self._submitted += 1
            if self._is_outdated(session):
                self._cut(session, session.versions.leading(self._version))
            self._turns.enqueue(session)

    def step(self, *, max_decode_steps: int) -> list[Finished]:
        left = max_decode_steps
        self._counters.visits += self.has_work()
        finished: list[Finished] = []
        with torch.inference_mode():
            while left > 0 and self.has_work() and (not finished or self._turns.waiting):
                self._turns.admit(self._version)
                self._turns.grow()
                if not self._network.has_kernels:
                    compact(self._turns.running, self._residents, self._storage)
                if any(session.pending > 1 for session in self._turns.running):
                    left -= 1
                    finished += self._mixed_pass()
                else:
                    steps = self._run_length(left)
                    left -= steps
                    finished += self._decode(steps)
        return finished

    def has_work(self) -> bool:
        return bool(self._turns.running or self._turns.waiting)

    def cancel(self, member: Member) -> None:
        session = self._residents.get(member)
        if session is not None:
            self._turns.drop(session)

    def release(self, member: Member) -> None:
        session = self._residents.get(member)
        if session is not None:
            self._turns.drop(session)
            self._residents.remove(session)

    def demote(self, member: Member, to: Literal["warm", "cold"]) -> None:
        session = self._residents.get(member)
        if session is not None and session.turn is None:
            self._residents.demote(session, to)

    def prefetch(self, member: Member) -> None:
        session = self._residents.get(member)
        if session is not None and session.turn is None:
            self._residents.prefetch(session)

    def suspend(self) -> None:
        self._turns.suspend()
        for session in self._residents:
            self._residents.demote(session, "warm")

    def hand_over(self, member: Member) -> HandedOver | None:
        session = self._residents.get(member)
        if session is None:
            return None
        assert session.turn is None, f"{member} has a turn"
        self._residents.give_away(session)
        return HandedOver(tokens=session.computed, session=session)

    def take_over(self, member: Member, handed: HandedOver) -> int:
        session: Session = handed.session
        if session.versions.oldest < self._dropped_at:
            session.lose()
        self._residents.adopt(session)
        return session.computed

    def load_weights(self, *, number: int, weights: Mapping[str, torch.Tensor], kv: KvPolicy) -> PolicyVersion:
        digest = self._network.load(weights)
        self._version = number
        self._probe.due.clear()
        everything = kv == "recompute" or self._poisoned
        self._dropped_at = number if everything else self._dropped_at
        for session in self._residents:
            # A paused session's KV may still be refreshed; it is looked at when its turn comes.
            if everything or (session.turn is not None and self._is_outdated(session)):
                self._cut(session, 0)
        if self._poisoned:
            # Attention multiplies masked values by zero, which does not silence a NaN left in a block.
            self._storage.clear()
            self._poisoned = False
        return PolicyVersion(number, digest)

    def trust_kv(self, trusted: bool) -> None:
        self._trusted = trusted

    def stale(self) -> list[StaleKv]:
        return [
            StaleKv(
                member=session.member,
                tokens=session.computed,
                fresh=session.versions.leading(self._version),
                oldest=session.versions.oldest,
            )
            for session in self._residents
            if session.turn is None and session.block is not None and session.versions.gap(self._version)
        ]

    def refresh(self, member: Member, tokens: int) -> int:
        session = self._residents.get(member)
        if session is None or session.turn is not None or session.block is None:
            return 0
        before = fresh = session.versions.leading(self._version)
        source, shared = self._turns.best_source(session, self._version)
        end = min(shared, session.computed)
        if source is not None and end > fresh:
            self._residents.copy_prefix(source, session, end)
            session.versions.renew(end, self._version)
            fresh = end
        new = min(tokens, session.computed - fresh)
        if new > 0:
            row = Row(session.block, fresh, new)
            packed = torch.tensor(session.tokens[fresh : fresh + new], device=self._network.device)
            with torch.inference_mode():
                batch = self._network.batch(self._storage, [row])
                logits = self._network.logits(packed, batch, last_only=True)
            self._poisoned = self._poisoned or bool(logits.isnan().any())
            session.versions.renew(fresh + new, self._version)
            self._counters.refreshed += new
            self._counters.starts += 1
            self._counters.attended += new * (fresh + (new - 1) / 2)
        return session.versions.leading(self._version) - before

    def probe(self) -> None:
        with torch.inference_mode():
            self._probe.run()

    def stats(self) -> EngineStats:
        return EngineStats(
            **vars(self._counters),
            hot_tokens=self._blocks.reserved,
            warm_tokens=self._residents.host_tokens,
            hot_sessions=sum(session.residency == "hot" for session in self._residents),
            running=len(self._turns.running),
            demotions=self._residents.demotions,
            reloads=self._residents.reloads,
            reloaded=self._residents.reloaded,
            reload_seconds=self._residents.reload_seconds,
            reload_wait=self._residents.reload_seconds,
            probed=self._probe.tokens,
            probe_difference=self._probe.difference,
            probe_k3=self._probe.k3,
            probes_due=len(self._probe.due),
        )

    def _check(self, request: SampleRequest) -> None:
        limit = self.capabilities.max_context
        if not 0 < len(request.tokens) < limit:
            raise ValueError(
                f"request of {request.member} has {len(request.tokens)} tokens, the engine's context holds {limit}; "
                "present at least one token and leave room for one more (engine.capacity_tokens bounds the context)."
            )
        if request.params.max_tokens < 1:
            raise ValueError(
                f"request of {request.member} has max_tokens {request.params.max_tokens}; ask for 1 or more."
            )

    def _new_session(self, member: Member) -> Session:
        key = stream_key(self._seed, member.purpose.value, member.group, member.slot, member.attempt)
        session = Session(member, key)
        self._residents.add(session)
        return session

    def _is_probed(self, session: Session) -> bool:
        turn = session.turn
        assert turn is not None
        gap = session.versions.gap(self._version)
        return 0 < gap <= self._gap and self._probe.chooses(session.member, turn.request.turn)

    def _is_outdated(self, session: Session) -> bool:
        """Whether the KV of a session with a turn is too old to go on with."""
        assert session.turn is not None
        limit = self._gap if self._trusted or session.turn.probed else 0
        return session.versions.gap(self._version) > limit

    def _cut(self, session: Session, tokens: int) -> None:
        """Leave the KV of the first `tokens` tokens."""
        if tokens or session.running:
            session.truncate(tokens)
        else:
            self._residents.forget(session)

    def _mixed_pass(self) -> list[Finished]:
        """Up to a chunk of prefill together with one token of every sequence that decodes."""
        budget = self._chunk
        chosen: list[tuple[Row, Session]] = []
        for session in self._turns.running:
            count = 1 if session.pending == 1 else min(session.pending, budget)
            budget -= count if session.pending > 1 else 0
            if count:
                chosen.append((self._row(session, count), session))
        chosen.sort(key=lambda pair: row_order(pair[0]))
        prefilled = [(row.new, row.start) for row, session in chosen if session.pending > 1]
        self._counters.prefills(prefilled, decoding=len(chosen) - len(prefilled))
        batch = self._network.batch(self._storage, [row for row, _ in chosen])
        tokens = [token for row, s in chosen for token in s.tokens[row.start : row.start + row.new]]
        logits = self._network.logits(torch.tensor(tokens, device=self._network.device), batch, last_only=True)
        for row, session in chosen:
            self._extend(session, row.new)
        complete = [index for index, (_, session) in enumerate(chosen) if session.pending == 0]
        if not complete:
            return []
        sessions = [chosen[index][1] for index in complete]
        draws, positions = self._draws(sessions)
        if len(complete) < len(chosen):
            logits = logits[torch.tensor(complete, device=logits.device)]
        sampled, logprobs = draws.draw(logits, draws.uniforms(positions, 1)[0])
        return self._record(sessions, sampled[None], logprobs[None])

    def _run_length(self, limit: int) -> int:
        """Decode steps until the first turn must end or the first block is full."""
        context = self.capabilities.max_context
        for session in self._turns.running:
            assert session.turn is not None
            assert session.block is not None
            room = session.block.length - session.computed
            limit = min(limit, session.turn.remaining, room, context - len(session.tokens))
        return limit

    def _decode(self, steps: int) -> list[Finished]:
        """`steps` tokens of every running sequence, fewer if one samples a stop token."""
        pairs = [(self._row(session, 1), session) for session in self._turns.running]
        pairs.sort(key=lambda pair: row_order(pair[0]))
        sessions = [session for _, session in pairs]
        batch = self._network.batch(self._storage, [row for row, _ in pairs], steps=steps)
        draws, positions = self._draws(sessions)
        uniforms = draws.uniforms(positions, steps)
        tokens = torch.tensor([session.tokens[-1] for session in sessions], device=self._network.device)
        sampled: list[torch.Tensor] = []
        logprobs: list[torch.Tensor] = []
        for step in range(steps):
            if step:
                batch.advance()
            tokens, logprob = draws.draw(self._network.logits(tokens, batch, last_only=False), uniforms[step])
            sampled.append(tokens)
            logprobs.append(logprob)
            if draws.stopped(tokens):
                break
        for session in sessions:
            self._extend(session, 1)
        return self._record(sessions, torch.stack(sampled), torch.stack(logprobs))

    def _draws(self, sessions: Sequence[Session]) -> tuple[Draws, torch.Tensor]:
        """Sampling settings of `sessions` and the positions of the tokens they sample next."""
        device = self._network.device
        turns = [session.turn for session in sessions if session.turn is not None]
        draws = Draws([turn.params for turn in turns], [session.key for session in sessions], device=device)
        return draws, torch.tensor([len(session.tokens) for session in sessions], device=device)

    def _row(self, session: Session, count: int) -> Row:
        assert session.block is not None
        return Row(session.block, session.computed, count)

    def _extend(self, session: Session, count: int) -> None:
        """Book `count` more tokens with KV."""
        assert session.turn is not None
        end = session.computed + count
        again = max(0, min(session.known, end) - session.computed)
        self._counters.reprefilled += again
        self._counters.prefilled += max(0, min(end, session.turn.prompt_length) - session.computed - again)
        session.extend(count, self._version)

    def _record(self, sessions: list[Session], sampled: torch.Tensor, logprobs: torch.Tensor) -> list[Finished]:
        """Append tokens and log-probs [steps, rows] to the turns; those that end leave, in order of submission."""
        finished: list[Finished] = []
        steps = len(sampled)
        self._poisoned = self._poisoned or bool(logprobs.isnan().any())
        self._counters.decodes([len(session.tokens) for session in sessions], steps)
        for session, tokens, values in zip(sessions, sampled.T.tolist(), logprobs.T.tolist(), strict=True):
            turn = session.turn
            assert turn is not None
            session.tokens += tokens
            turn.logprobs += values
            turn.versions += [self._version] * steps
            # The last token sampled has no KV yet, the ones before it were computed on the way.
            session.extend(steps - 1, self._version)
        ended = [(session, stop) for session in sessions if (stop := self._stop(session)) is not None]
        for session, stop in sorted(ended, key=lambda pair: self._turns.order(pair[0])):
            finished.append(self._finish(session, stop))
        return finished

    def _stop(self, session: Session) -> SampleStop | None:
        turn = session.turn
        assert turn is not None
        if session.tokens[-1] in turn.params.stop_tokens:
            return SampleStop.STOP_TOKEN
        if turn.remaining == 0:
            return SampleStop.LENGTH
        return SampleStop.CONTEXT if len(session.tokens) == self.capabilities.max_context else None

    def _finish(self, session: Session, stop: SampleStop) -> Finished:
        turn = session.turn
        assert turn is not None
        self._turns.drop(session)
        self._residents.touch(session)
        if turn.probed and session.versions.gap(self._version):
            first = turn.prompt_length + turn.versions.index(self._version)
            kept = turn.logprobs[first - turn.prompt_length :]
            self._probe.due.append(Case(tuple(session.tokens), first, kept, turn.params))
        sampled = Sampled(
            tokens=tuple(session.tokens[turn.prompt_length :]),
            logprobs=tuple(turn.logprobs),
            versions=tuple(turn.versions),
            stop=stop,
        )
        return Finished(member=session.member, turn=turn.request.turn, sampled=sampled)
