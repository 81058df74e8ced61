"""The state of a run: a fold over its events, and nothing else.

`RunState` is changed only by `apply`, one event at a time in order; legality comes from
`core.lifecycle`. It is the one mutable value of the core, because a copy per event would make a
long history quadratic. It never reads a clock: events carry their time.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator, Sequence

from stepwell.core import events as e
from stepwell.core import stream_state
from stepwell.core.attributes import NOTHING, read_attributes
from stepwell.core.lifecycle import CHILD, HOOK, MAP, RUN, STEP, TIMER, CorruptHistory, follow
from stepwell.core.lives import Lives
from stepwell.core.parts import ChildState, HookState, MapState, StepState, TimerState
from stepwell.core.records import Guards, Millis, Payload
from stepwell.core.subscription import Subscription, handling_id
from stepwell.core.volume import volume
from stepwell.core.waiting import Waiting
from stepwell.errors import Failure


class RunState(Waiting):
    """What a run's log says, so far. `volume` is how many bytes it takes.

    `patches` holds the ids of patches that were marked, `attributes` the JSON of each attribute.
    `lives` is about runs that were retried or forked. `inbox` holds the latest value of each key,
    `entries` the ids of all entries; `requests` the ids of the requests to look again that were
    recorded. `emits` are the signals that were emitted, by id, `polls` the looks at waiting ones.
    Of a subscription, `subscription` is what it has come to, and `snapshot` the number of the event
    from which its log may be read, 0 for its first; `kept_from` is that of an earlier one, taken at
    `kept_from_at`, before which nothing is read any more a day later. `suspended` is the event with
    which the workflow suspended itself and that nothing has followed that lets it begin again;
    `epoch` the number of the last event that did, 0 if none.
    """

    __slots__ = (
        "at",
        "attributes",
        "cancel",
        "children",
        "continued",
        "emits",
        "entries",
        "epoch",
        "error",
        "guards",
        "hooks",
        "inbox",
        "kept_from",
        "kept_from_at",
        "last",
        "lives",
        "maps",
        "patches",
        "polls",
        "requests",
        "result",
        "snapshot",
        "started",
        "status",
        "steps",
        "subscription",
        "suspended",
        "timers",
        "volume",
    )

    def __init__(self, last: int = 0) -> None:
        self.last = last
        self.volume = 0
        self.at: Millis = 0
        self.status: str | None = None
        self.started: e.RunStarted | None = None
        self.steps: dict[str, StepState] = {}
        self.hooks: dict[str, HookState] = {}
        self.timers: dict[str, TimerState] = {}
        self.maps: dict[str, MapState] = {}
        self.patches: set[str] = set()
        self.attributes: dict[str, str] = {}
        self.cancel: e.CancelRequested | None = None
        self.lives = Lives()
        self.inbox: dict[str, Payload] = {}
        self.entries: set[str] = set()
        self.requests: set[str] = set()
        self.guards: Guards | None = None
        self.suspended: e.RunSuspended | None = None
        self.epoch = 0
        self.children: dict[str, ChildState] = {}
        self.continued: e.RunContinued | None = None
        self.emits: dict[str, e.SignalEmitted] = {}
        self.polls: set[str] = set()
        self.subscription: Subscription | None = None
        self.snapshot = 0
        self.kept_from = 0
        self.kept_from_at: Millis = 0
        self.result: Payload | None = None
        self.error: Failure | None = None

    @property
    def terminal(self) -> bool:
        """Whether the run has ended."""
        return self.status not in (None, "running")

    @property
    def length(self) -> int:
        """Events since the beginning, or since the last snapshot."""
        return self.last - self.snapshot

    def is_item_elsewhere(self, step: str | None) -> bool:
        """Whether a step is an item of a dispatched map that this run has not taken over so far."""
        if step is None or step in self.steps:
            return False
        known = self.maps.get(step.partition("#")[0])
        return known is not None and known.dispatched and known.status == "started"

    def apply(self, event: e.Event) -> None:
        """Take the next event in. Raises `CorruptHistory` if it cannot follow."""
        if self.status != "running" and not self._begins_with(event):
            raise CorruptHistory(f"{event.type} cannot follow: the run is {self.status or 'new'}")
        _APPLY[event.type](self, event)
        self.last += 1
        self.volume += volume(event)
        self.at = max(self.at, event.at)

    def do_again(self, again: Iterable[str], at: Millis) -> None:
        """Begin anew, at a time, with what succeeded: forget what is to be done `again`, and all
        that had not come to an end."""
        lives, number, redo = self.lives, self.last + 1, set(again)
        for step in list(self.steps.values()):
            if step.id in redo or step.status not in ("completed", "failed"):
                del self.steps[step.id]
                redo.add(step.id)
        for timer in list(self.timers.values()):
            if timer.id in redo or timer.status != "fired":
                if timer.status == "fired":
                    lives.restarted[timer.id] = at
                del self.timers[timer.id]
                redo.add(timer.id)
        for each in list(self.maps.values()):
            # Others start anew, with what their items have left.
            if each.id in redo or not each.told:
                del self.maps[each.id]
                redo.add(each.id)
                redo.update(_forget_items(self, each))
        for hook in self.hooks.values():
            if _is_asked_again(hook, redo):
                lives.open_again(hook.id, hook.step)
                redo.add(hook.id)
        for child in list(self.children.values()):
            # One that was open was cancelled when the run ended, unless it was abandoned.
            if child.id in redo or (child.open and child.on_parent_close == "cancel"):
                del self.children[child.id]
                lives.start_again(child.id)
                redo.add(child.id)
        kept = {*self.steps, *self.maps, *self.timers, *self.hooks, *self.children}
        kept |= {*self.emits, *self.polls}
        lives.begin(number, redo, kept, (self.at, at))

    def _begins_with(self, event: e.Event) -> bool:
        if self.status is None:
            return event.type in ("RunStarted", "SubscriptionSnapshot")
        return event.type in ("RunRetried", "RunDeleted")


def fold(events: Iterable[e.Event], before: int = 0) -> RunState:
    """The state after these events: from the beginning, or from a snapshot on.

    `before` is how many events lie before the first of them.
    """
    state = RunState(before)
    for event in events:
        state.apply(event)
    return state


def fold_commits(commits: Sequence[e.Commit]) -> RunState:
    """The state after a log, or the part of one that begins with a snapshot."""
    before = commits[0].first - 1 if commits else 0
    return fold((event for commit in commits for event in commit.events), before)


def numbered(commits: Iterable[e.Commit]) -> Iterator[tuple[int, e.Event]]:
    """The events of a log with their numbers."""
    for commit in commits:
        yield from enumerate(commit.events, commit.first)


def is_of(state: RunState, identity: str, step: str | None = None) -> bool:
    """Whether something belongs to what the run does now: of a subscription, to the signal under
    way. What belonged to one before has nobody who would ask for it; nor has a hook, held by this
    step if any, of before the signal was redriven."""
    known = state.subscription
    if known is None:
        return True
    if known.current is None:
        return False
    scope = handling_id(known.current.sequence)
    ours = identity.startswith((f"{scope}/", f"{scope}."))
    return ours and (identity in state.hooks or not state.lives.is_past(identity, step))


def _run_started(state: RunState, event: e.RunStarted) -> None:
    state.status = follow(RUN, state.status, event.type, "the run")
    state.started = event
    state.guards = event.guards
    if event.stream_run is not None:
        stream_state.begin(state, event)


def _run_completed(state: RunState, event: e.RunCompleted) -> None:
    state.status = follow(RUN, state.status, event.type, "the run")
    state.result = event.result


def _run_failed(state: RunState, event: e.RunFailed) -> None:
    state.status = follow(RUN, state.status, event.type, "the run")
    state.error = event.error
    state.lives.redo = event.redo or ()


def _run_cancelled(state: RunState, event: e.RunCancelled) -> None:
    state.status = follow(RUN, state.status, event.type, "the run")
    state.lives.redo = event.redo or ()


def _run_retried(state: RunState, event: e.RunRetried) -> None:
    state.status = follow(RUN, state.status, event.type, "the run")
    state.cancel = state.error = state.suspended = None
    state.do_again(state.lives.redo, event.at)


def _forget_items(state: RunState, known: MapState) -> list[str]:
    """Forget the items that a dispatched map has handed over: it makes all of them anew."""
    items = [step for step in state.steps if step.startswith(f"{known.id}#")]
    found = items if known.dispatched else []
    for step in found:
        del state.steps[step]
    return found


def _run_deleted(state: RunState, event: e.RunDeleted) -> None:
    state.status = follow(RUN, state.status, event.type, "the run")


def _is_asked_again(hook: HookState, redo: Container[str]) -> bool:
    """Whether code that asks for a hook after a retry asks anew: what is decided stays so."""
    if hook.step is None:
        return hook.id in redo or hook.status not in ("received", "expired", "failed")
    return hook.status != "received"


def _run_forked(state: RunState, event: e.RunForked) -> None:
    state.lives.forked = True
    state.lives.pauses.append((state.at, event.at))
    for child in state.open_children():
        child.since = event.at  # another run, which begins now


def _step_superseded(state: RunState, event: e.StepSuperseded) -> None:
    state.steps.pop(event.step, None)
    state.lives.forget(event.step, state.last + 1)


def _patch_marked(state: RunState, event: e.PatchMarked) -> None:
    state.patches.add(event.patch)


def _attributes_set(state: RunState, event: e.AttributesSet) -> None:
    for name, text in read_attributes(event.attributes).items():
        if text == NOTHING:
            state.attributes.pop(name, None)
        else:
            state.attributes[name] = text


def _run_continued(state: RunState, event: e.RunContinued) -> None:
    state.status = follow(RUN, state.status, event.type, "the run")
    state.continued = event


def _child(
    state: RunState, event: e.ChildStarted | e.ChildCancelRequested | e.ChildEnded
) -> ChildState:
    child = state.children.get(event.child)
    if child is None:
        status = follow(CHILD, None, event.type, event.child)
        child = ChildState(event.child, event.name, status, event.at)
        state.children[event.child] = child
    else:
        child.status = follow(CHILD, child.status, event.type, event.child)
    return child


def _child_started(state: RunState, event: e.ChildStarted) -> None:
    child = _child(state, event)
    child.order = state.last + 1
    child.run_id = event.run_id
    child.digest = event.digest
    child.version = event.version
    child.input = event.input
    child.context = event.context
    child.guards = event.guards
    child.on_parent_close = event.on_parent_close or "cancel"
    child.stream_run = event.stream_run
    child.after = event.after or 0


def _child_cancel_requested(state: RunState, event: e.ChildCancelRequested) -> None:
    _child(state, event).reason = event.reason


def _child_ended(state: RunState, event: e.ChildEnded) -> None:
    child = _child(state, event)
    child.ending = event.status
    child.input, child.context = "", None  # nobody will send for it again


def _cancel_requested(state: RunState, event: e.CancelRequested) -> None:
    if state.cancel is None:
        state.cancel = event


_StepEvent = (
    e.StepStarted
    | e.StepCompleted
    | e.StepFailed
    | e.StepRetryScheduled
    | e.StepSuspended
    | e.StepCancelled
)


def _step(state: RunState, event: _StepEvent) -> StepState:
    step = state.steps.get(event.step)
    if step is None:
        status = follow(STEP, None, event.type, event.step)
        step = StepState(event.step, event.name, event.digest, status)
        state.steps[event.step] = step
    else:
        step.status = follow(STEP, step.status, event.type, event.step)
    step.due = None
    step.reason = None
    step.order = 0
    step.since = event.at
    return step


def _step_started(state: RunState, event: e.StepStarted) -> None:
    step = _step(state, event)
    step.attempts = event.attempt
    step.woken = False
    if event.input is not None:
        step.order = state.last + 1
        step.input = event.input
        step.options = event.options
        step.context = event.context


def _step_ended(state: RunState, event: e.StepCompleted | e.StepFailed) -> None:
    _step(state, event).attempts = event.attempt


def _step_retry(state: RunState, event: e.StepRetryScheduled) -> None:
    step = _step(state, event)
    step.attempts = event.attempt
    step.due = event.due


def _step_suspended(state: RunState, event: e.StepSuspended) -> None:
    known = state.steps.get(event.step)
    # What was decided while a dispatched entry was under way, it does not know of.
    woken = known is not None and bool(known.order) and known.woken
    step = _step(state, event)
    step.attempts = event.attempt - 1
    step.entries = event.entry
    step.woken = woken
    step.output = event.output
    step.reason = event.reason
    if event.save_id is not None:
        step.saves[event.save_id] = event.output


def _step_cancelled(state: RunState, event: e.StepCancelled) -> None:
    _step(state, event)


def _map(state: RunState, event: e.MapStarted | e.MapEnded) -> None:
    known = state.maps.get(event.map)
    status = follow(MAP, None if known is None else known.status, event.type, event.map)
    if known is not None and isinstance(event, e.MapEnded):
        known.status = status
        known.left = state.last + 1 if event.left else 0
        known.told = event.outcomes is not None
    elif isinstance(event, e.MapStarted):
        state.maps[event.map] = MapState(
            event.map, event.name, status, event.at, event.total, state.last + 1, event
        )


_HookEvent = (
    e.HookOpened | e.HookNotifyFailed | e.HookReceived | e.HookExpired | e.HookFailed | e.HookClosed
)


def _hook(state: RunState, event: _HookEvent) -> HookState:
    hook = state.hooks.get(event.hook)
    if hook is None:
        status = follow(HOOK, None, event.type, event.hook)
        step = getattr(event, "step", None)
        hook = HookState(event.hook, event.name, step, status, event.at)
        state.hooks[event.hook] = hook
    else:
        hook.status = follow(HOOK, hook.status, event.type, event.hook)
    hook.notify_due = None
    return hook


def _hook_opened(state: RunState, event: e.HookOpened) -> None:
    hook = _hook(state, event)
    hook.expires_at = event.expires_at
    hook.due_at = event.due_at
    hook.question = event.question


def _hook_notify_failed(state: RunState, event: e.HookNotifyFailed) -> None:
    hook = _hook(state, event)
    hook.notify_attempts = event.attempt
    hook.notify_due = event.due


def _hook_received(state: RunState, event: e.HookReceived) -> None:
    _hook_ended(state, event)
    state.hooks[event.hook].payload = event.payload


def _hook_failed(state: RunState, event: e.HookFailed) -> None:
    _hook(state, event)


def _inbox_received(state: RunState, event: e.InboxReceived) -> None:
    state.entries.add(event.entry)
    # Last in the order of keys too: what a mapping shows does not depend on what it held before.
    state.inbox.pop(event.key, None)
    state.inbox[event.key] = event.payload
    if event.first and state.last in (1, state.epoch):
        state.epoch = state.last + 1
    _look_again(state)


def _run_suspended(state: RunState, event: e.RunSuspended) -> None:
    state.suspended = event


def _look_requested(state: RunState, event: e.LookRequested) -> None:
    state.requests.add(event.request_id)
    _look_again(state)


def _guards_replaced(state: RunState, event: e.GuardsReplaced) -> None:
    state.requests.add(event.request_id)
    state.guards = event.guards
    _look_again(state)


def _look_again(state: RunState) -> None:
    """What waits for input is entered again; so is what suspends for it while it is away."""
    for step in state.steps.values():
        if step.reason is not None or step.order:
            step.woken = True
    # What follows at once, nothing of the code's in between, is there when it begins too.
    if state.suspended is not None or 0 < state.epoch == state.last:
        state.suspended = None
        state.epoch = state.last + 1


def _hook_ended(state: RunState, event: e.HookReceived | e.HookExpired | e.HookClosed) -> None:
    unknown = event.hook not in state.hooks
    hook = _hook(state, event)
    if unknown and event.type == "HookClosed" and 0 < state.lives.late == state.last:
        # Its row was closed after the end of the life before: whoever asks now asks anew.
        state.lives.open_again(hook.id, hook.step)
        state.lives.kept.add(hook.id)
        state.lives.late += 1
    if hook.step in state.steps:
        state.steps[hook.step].woken = True


def _timer(state: RunState, event: e.TimerStarted | e.TimerFired | e.TimerCancelled) -> None:
    timer = state.timers.get(event.timer)
    if timer is None:
        status = follow(TIMER, None, event.type, event.timer)
        due = event.at if isinstance(event, e.TimerCancelled) else event.due
        state.timers[event.timer] = TimerState(event.timer, event.name, status, event.at, due)
    else:
        timer.status = follow(TIMER, timer.status, event.type, event.timer)


_APPLY: dict[str, Callable[..., None]] = {
    "RunStarted": _run_started,
    "RunCompleted": _run_completed,
    "RunFailed": _run_failed,
    "RunCancelled": _run_cancelled,
    "PatchMarked": _patch_marked,
    "AttributesSet": _attributes_set,
    "RunRetried": _run_retried,
    "RunDeleted": _run_deleted,
    "RunForked": _run_forked,
    "StepSuperseded": _step_superseded,
    "CancelRequested": _cancel_requested,
    "InboxReceived": _inbox_received,
    "RunSuspended": _run_suspended,
    "LookRequested": _look_requested,
    "GuardsReplaced": _guards_replaced,
    "StepStarted": _step_started,
    "StepCompleted": _step_ended,
    "StepFailed": _step_ended,
    "StepRetryScheduled": _step_retry,
    "StepSuspended": _step_suspended,
    "StepCancelled": _step_cancelled,
    "MapStarted": _map,
    "MapEnded": _map,
    "HookOpened": _hook_opened,
    "HookNotifyFailed": _hook_notify_failed,
    "HookReceived": _hook_received,
    "HookExpired": _hook_ended,
    "HookFailed": _hook_failed,
    "HookClosed": _hook_ended,
    "TimerStarted": _timer,
    "TimerFired": _timer,
    "TimerCancelled": _timer,
    "ChildStarted": _child_started,
    "ChildCancelRequested": _child_cancel_requested,
    "ChildEnded": _child_ended,
    "RunContinued": _run_continued,
    "SignalEmitted": stream_state.signal_emitted,
    "SignalTaken": stream_state.signal_taken,
    "SignalHandled": stream_state.signal_handled,
    "SignalRetryScheduled": stream_state.signal_retry_scheduled,
    "SignalParked": stream_state.signal_parked,
    "SignalsHeld": stream_state.signals_held,
    "SignalRedriven": stream_state.signal_redriven,
    "SignalDiscarded": stream_state.signal_discarded,
    "InboxPolled": stream_state.inbox_polled,
    "SubscriptionSnapshot": stream_state.snapshot_taken,
    "ChildWaits": stream_state.child_waits,
}
