"""The journal against a dictionary: any order of accepting, ending, asking and restarting."""

import asyncio
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from fairlead.engine.live.journal import Accept, Final, Journal, KeyConflictError

WORKFLOWS = st.sampled_from(["a.x", "a.y"])
KEYS = st.none() | st.sampled_from(["k1", "k2"])
BODIES = st.sampled_from([b"", b"one", b"two" * 3000])
STATES = st.sampled_from(["completed", "failed", "rejected", "dropped", "cancelled"])


@dataclass
class Known:
    """What the journal was told of a request."""

    workflow: str
    body: bytes
    key: str | None
    callback: str | None
    attempts: int = 0
    final: Final | None = None
    delivery: str | None = None


class Model(RuleBasedStateMachine):
    def __init__(self):
        super().__init__()
        self.folder = Path(tempfile.mkdtemp(prefix="fairlead-test-"))
        self.runner = asyncio.Runner()
        self.known: dict[str, Known] = {}
        self.ignored = 0
        self.undelivered = []
        self.journal = None
        self.open(self.folder / "journal.sqlite")

    def do(self, work):
        return self.runner.run(work)

    def open(self, path):
        self.ignored = 0
        self.journal, self.path = Journal(path), path
        pending = self.do(self.journal.open())
        assert self.journal.notices == ()
        assert [entry.id for entry in pending] == [id for id, known in self.known.items() if known.final is None]
        assert [entry.attempts for entry in pending] == [k.attempts for k in self.known.values() if k.final is None]
        self.undelivered = [entry.id for entry in self.journal.watch_undelivered(self.note)]
        assert set(self.undelivered) == {id for id, known in self.known.items() if known.delivery == "pending"}

    def note(self, entry):
        self.undelivered.append(entry.id)

    def pick(self, data, condition=lambda known: True):
        return data.draw(st.sampled_from([id for id, known in self.known.items() if condition(known)]))

    @rule(workflow=WORKFLOWS, key=KEYS, body=BODIES, url=st.sampled_from([None, "http://h/p"]))
    def accept(self, workflow, key, body, url):
        same = [i for i, k in self.known.items() if key is not None and (k.workflow, k.key) == (workflow, key)]
        asked = Accept(workflow=workflow, body=body, key=key, callback_url=url)
        if same and self.known[same[0]].body != body:
            with pytest.raises(KeyConflictError, match=same[0]):
                self.do(self.journal.accept(asked))
            return
        accepted = self.do(self.journal.accept(asked))
        if same:
            assert (accepted.id, accepted.is_new) == (same[0], False)
        else:
            assert accepted.is_new
            assert accepted.id not in self.known
            self.known[accepted.id] = Known(workflow, body, key, url)

    @precondition(lambda self: self.known)
    @rule(data=st.data(), state=STATES, result=st.none() | BODIES)
    def finish(self, data, state, result):
        id = self.pick(data)
        final = Final(state=state, result=result, reason=f"because {state}", cost_usd=0.5)
        self.journal.finish(id, final)
        known = self.known[id]
        if known.final is not None:
            self.ignored += 1
            return
        known.final, known.delivery = final, known.callback and "pending"
        assert self.do(self.journal.wait(id, 30)).is_final

    @precondition(lambda self: any(known.final is None for known in self.known.values()))
    @rule(data=st.data())
    def start(self, data):
        id = self.pick(data, lambda known: known.final is None)
        self.known[id].attempts += 1
        self.journal.started(id)

    @precondition(lambda self: any(known.delivery == "pending" for known in self.known.values()))
    @rule(data=st.data(), fate=st.sampled_from(["delivered", "failed", "pending"]))
    def deliver(self, data, fate):
        id = self.pick(data, lambda known: known.delivery == "pending")
        self.known[id].delivery = fate
        if fate == "delivered":
            self.journal.delivered(id)
        else:
            self.journal.delivery_failed(id, "no answer", is_final=fate == "failed")

    @precondition(lambda self: self.known)
    @rule(data=st.data())
    def resume(self, data):
        id = self.pick(data)
        known = self.known[id]
        if known.attempts < 100:
            body = self.do(self.journal.resume(id))
            assert body == (known.body if known.final is None else None)

    @rule()
    def restart(self):
        self.check_all()
        self.do(self.journal.close())
        self.open(self.path)

    @rule()
    def lose_power(self):
        """Go on with a copy of what is on disk at this moment."""
        self.check_all()
        folder = Path(tempfile.mkdtemp(dir=self.folder))
        for suffix in ("", "-wal"):
            name = f"{self.path.name}{suffix}"
            (folder / name).write_bytes((self.path.parent / name).read_bytes())
        self.do(self.journal.close())
        self.open(folder / self.path.name)

    def check_all(self):
        """Every entry is what it was told, after all that is queued is written."""
        accepted = self.do(self.journal.accept(Accept(workflow="a.z", body=b"", key="z")))
        self.known.setdefault(accepted.id, Known("a.z", b"", "z", None))
        for id, known in self.known.items():
            entry = self.do(self.journal.get(id))
            assert (entry.workflow, entry.attempts, entry.delivery) == (known.workflow, known.attempts, known.delivery)
            if known.final is None:
                assert entry.state == "accepted"
            else:
                shown = Final(state=entry.state, result=entry.result, reason=entry.reason, cost_usd=entry.cost_usd)
                assert shown == known.final
        assert set(self.undelivered) >= {id for id, known in self.known.items() if known.delivery == "pending"}
        stats = self.journal.stats()
        assert stats.open == sum(known.final is None for known in self.known.values())
        assert stats.finished == sum(known.final is not None for known in self.known.values())
        assert stats.undelivered == sum(known.delivery == "pending" for known in self.known.values())
        assert stats.ignored == self.ignored

    @invariant()
    def nothing_failed(self):
        assert self.journal.stats().errors == 0

    def teardown(self):
        self.check_all()
        self.do(self.journal.close())
        self.runner.close()
        shutil.rmtree(self.folder)


TestJournalAgainstADictionary = Model.TestCase
TestJournalAgainstADictionary.settings = settings(max_examples=12, stateful_step_count=30, deadline=None)
