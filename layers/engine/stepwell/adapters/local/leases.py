"""Leases: messages stay invisible while their turns run, and come back soon when a process dies.

Renewal has a thread of its own. A step that blocks the event loop, for whatever reason, must not
cost the lease of any turn of this process: another one would run the same step at the same time.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Generic, Protocol, TypeVar

from stepwell.core.records import Millis
from stepwell.engine.ports import TransientError

_LOG = logging.getLogger("stepwell.local")
#: How many times a lease is renewed before it would end.
_RENEWALS = 3


class Held(Protocol):
    """What was received, under a receipt."""

    @property
    def receipt(self) -> str:
        """Names just this receive."""


H = TypeVar("H", bound=Held)
Held_contra = TypeVar("Held_contra", bound=Held, contravariant=True)


class Renewable(Protocol[Held_contra]):
    """A queue whose messages can be kept invisible, from any thread."""

    def postpone(self, delivery: Held_contra, delay: Millis) -> bool:
        """Make the message visible again only after `delay` ms. False when it is held no more."""


class Leases(Generic[H]):
    """Renews the leases of the deliveries that are held, `lease` ms at a time.

    The thread is started on first use, sleeps while nothing is held, and ends with `close`.
    """

    def __init__(self, queue: Renewable[H], lease: Millis) -> None:
        self._queue = queue
        self._lease = lease
        # Guards what is below. It is held during a renewal, so none comes after `held` was left.
        self._changed = threading.Condition()
        self._held: dict[str, H] = {}
        self._thread: threading.Thread | None = None
        self._resting = False
        self._closed = False

    @contextmanager
    def held(self, delivery: H) -> Iterator[None]:
        """Keep a message invisible until this is left."""
        with self._changed:
            self._held[delivery.receipt] = delivery
            if self._thread is None:
                self._thread = threading.Thread(
                    target=self._keep, name="stepwell-leases", daemon=True
                )
                self._thread.start()
            elif self._resting:
                self._changed.notify()
        try:
            yield
        finally:
            with self._changed:
                self._held.pop(delivery.receipt, None)

    def close(self) -> None:
        """Renew nothing more. Returns when the thread has ended."""
        with self._changed:
            self._closed = True
            self._held.clear()
            self._changed.notify()
        if self._thread is not None:
            self._thread.join()

    def _keep(self) -> None:
        # One round goes by before it rests: a busy engine need not wake it for every turn.
        with self._changed:
            while not self._closed:
                self._resting = not self._held
                self._changed.wait(None if self._resting else self._lease / 1000 / _RENEWALS)
                for delivery in () if self._resting else tuple(self._held.values()):
                    self._renew(delivery)

    def _renew(self, delivery: H) -> None:
        try:
            held = self._queue.postpone(delivery, self._lease)
        except TransientError:
            return  # the next renewal comes before the lease ends
        except Exception:
            _LOG.exception("the lease of message %s was not renewed", delivery.receipt)
            return
        if not held:
            del self._held[delivery.receipt]
            _LOG.warning(
                "message %s was delivered again while its turn ran: this turn will be fenced off",
                delivery.receipt,
            )
