"""SQS, simulated: FIFO queues with groups, and a standard one. Nothing here happens by itself.

A message that was received stays invisible until a time; then it may be received again, and the
receipt of the time before is worth nothing. What was received too often becomes a dead letter.
`redrive` sends a dead letter again, behind all that is there, however old it is.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from hashlib import sha256

from stepwell.core.messages import (
    MapItem,
    Message,
    SignalSent,
    StepMessage,
    dump_message,
    dump_signal,
)
from stepwell.core.records import Millis
from stepwell.core.signals import BATCH
from stepwell.engine.ports import Delivery

#: For how long equal bodies of one group are one message.
DEDUPLICATION: Millis = 300_000


@dataclass(slots=True)
class Letter:
    """One message. `visible_at` is when it can be received."""

    message_id: str
    group: str
    body: str
    visible_at: Millis
    receive_count: int = 0

    def deliver(self) -> Delivery:
        """This receive of it."""
        return Delivery(
            body=self.body,
            receipt=f"{self.message_id}.{self.receive_count}",
            receive_count=self.receive_count,
            message_id=self.message_id,
        )


@dataclass(slots=True)
class SimulatedQueue:
    """What both kinds share. `now` is the true time."""

    name: str
    now: Callable[[], Millis]
    visibility: Millis
    max_receive_count: int
    letters: list[Letter] = field(default_factory=list)
    dead: list[Letter] = field(default_factory=list)
    #: Dead letters that were seen to, and messages that were deleted: they may be sent again.
    buried: list[Letter] = field(default_factory=list)
    done_with: list[Letter] = field(default_factory=list)
    _names: dict[str, int] = field(default_factory=dict)

    def receivable(self) -> Iterator[Letter]:
        """Messages that could be received now."""
        now = self.now()
        return (letter for letter in self.letters if letter.visible_at <= now)

    def receive(self, letter: Letter) -> Delivery | None:
        """Receive it; None when that was tried too often, and it is dead now."""
        if letter.receive_count >= self.max_receive_count:
            self.letters.remove(letter)
            self.dead.append(letter)
            return None
        letter.receive_count += 1
        letter.visible_at = self.now() + self.visibility
        return letter.deliver()

    def appear(self, letter: Letter) -> None:
        """Let its visibility be over."""
        letter.visible_at = min(letter.visible_at, self.now())

    async def delete(self, delivery: Delivery) -> bool:
        """Acknowledge. False, without effect, when the receipt is stale."""
        letter = self._held(delivery)
        if letter is not None:
            self.letters.remove(letter)
            self.done_with.append(letter)
        return letter is not None

    async def give_back(self, delivery: Delivery, *, delay: Millis = 0) -> bool:
        """Make it visible after `delay` ms. False, without effect, when the receipt is stale."""
        letter = self._held(delivery)
        if letter is not None:
            letter.visible_at = self.now() + delay
        return letter is not None

    def redrive(self, letter: Letter) -> None:
        """Send a message again, as a new one, whatever became of it."""
        for place in (self.dead, self.buried, self.done_with):
            if letter in place:
                place.remove(letter)
        self._enter(letter.group, letter.body)

    def next_visible_at(self) -> Millis | None:
        """When the next message can be received that cannot be received now."""
        now = self.now()
        times = (letter.visible_at for letter in self.letters if letter.visible_at > now)
        return min(times, default=None)

    def contents(self) -> tuple[object, ...]:
        """All that decides what can still come from it."""
        return (self.letters, self.dead, self.buried, self.done_with)

    def holds(self, run_id: str) -> bool:
        """Whether there is a message of a run, also one that is being worked on."""
        return any(letter.group == run_id for letter in self.letters)

    def _held(self, delivery: Delivery) -> Letter | None:
        for letter in self.letters:
            if letter.message_id == delivery.message_id:
                current = letter.deliver().receipt == delivery.receipt
                return letter if current and letter.visible_at > self.now() else None
        return None

    def _enter(self, group: str, body: str, delay: Millis = 0) -> None:
        # Named after what it says, so that what leads to the same state is seen to do so.
        name = f"{json.loads(body)['type']}-{sha256(body.encode()).hexdigest()[:4]}"
        known = self._names[name] = self._names.get(name, 0) + 1
        message_id = name if known == 1 else f"{name}-{known}"
        self.letters.append(Letter(message_id, group, body, visible_at=self.now() + delay))


@dataclass(slots=True)
class GroupedQueue(SimulatedQueue):
    """A FIFO queue. Of a group nothing comes while what is older is worked on."""

    _known: dict[tuple[str, bytes], Millis] = field(default_factory=dict)

    def contents(self) -> tuple[object, ...]:
        """Also which bodies it would drop."""
        now = self.now()
        known = sorted(key for key, until in self._known.items() if until > now)
        return (self.letters, self.dead, self.buried, self.done_with, known)

    def _put(self, group: str, what: str, body: str) -> None:
        """Put a message into a group, unless one that says the same came within five minutes."""
        key, now = (group, sha256(what.encode()).digest()), self.now()
        if self._known.get(key, 0) <= now:
            self._known[key] = now + DEDUPLICATION
            self._enter(group, body)

    def receivable(self) -> Iterator[Letter]:
        """The oldest message of each group, if it is visible."""
        seen: set[str] = set()
        now = self.now()
        for letter in self.letters:
            if letter.group not in seen:
                seen.add(letter.group)
                if letter.visible_at <= now:
                    yield letter

    def next_visible_at(self) -> Millis | None:
        """When the oldest message of a group becomes visible; the others wait behind it."""
        oldest: dict[str, Millis] = {}
        for letter in self.letters:
            oldest.setdefault(letter.group, letter.visible_at)
        now = self.now()
        return min((time for time in oldest.values() if time > now), default=None)


@dataclass(slots=True)
class FifoQueue(GroupedQueue):
    """Implements the `Queue` port. A group is a run; its messages come one at a time."""

    async def send(self, message: Message) -> None:
        """Send to the group of the message's run. Equal bodies within five minutes are one."""
        body = dump_message(message)
        self._put(message.run_id, body, body)

    async def send_all(self, messages: Sequence[Message]) -> None:
        """Send several, as by `send`."""
        for message in messages:
            await self.send(message)


@dataclass(slots=True)
class SignalFifo(GroupedQueue):
    """Implements the `SignalQueue` port. A group is a stream run; up to ten of it come together."""

    async def send(self, signals: Sequence[SignalSent]) -> None:
        """Send signals. Equal ids on one stream run within five minutes are one."""
        for signal in signals:
            self._put(signal.key.owner, signal.signal_id, dump_signal(signal))

    def batch_of(self, letter: Letter) -> tuple[Delivery, ...]:
        """Receive it, with what comes behind it in its group."""
        now = self.now()
        alike = [each for each in self.letters if each.group == letter.group]
        taken = [self.receive(each) for each in alike[:BATCH] if each.visible_at <= now]
        return tuple(delivery for delivery in taken if delivery is not None)

    def appear(self, letter: Letter) -> None:
        """Let the visibility of all that was received with it be over."""
        for each in self.letters:
            if each.group == letter.group:
                SimulatedQueue.appear(self, each)

    async def delete_all(self, batch: Sequence[Delivery]) -> bool:
        """Acknowledge those whose receipts are good. Whether all of them were."""
        return all([await self.delete(delivery) for delivery in batch])

    async def give_back_all(self, batch: Sequence[Delivery], *, delay: Millis) -> bool:
        """Make them visible after `delay` ms. Whether all receipts were good."""
        return all([await self.give_back(delivery, delay=delay) for delivery in batch])


@dataclass(slots=True)
class StandardQueue(SimulatedQueue):
    """Implements the `StepQueue` port. Any message may come next, also one that is worked on."""

    async def send(self, attempt: StepMessage) -> None:
        """Have an attempt made."""
        self._enter(attempt.run_id, dump_message(attempt))

    async def send_items(self, items: Sequence[MapItem], *, delay: Millis = 0) -> None:
        """Have attempts of items made, some time from now on."""
        for item in items:
            self._enter(item.run_id, dump_message(item), delay)

    def duplicate(self, letter: Letter) -> Delivery:
        """Deliver it once more, though it was delivered; SQS counts that as the same receive."""
        return letter.deliver()
