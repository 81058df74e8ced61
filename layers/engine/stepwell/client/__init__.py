"""What a caller uses: start runs, look at them, wait for them, operate them, answer their hooks."""

from stepwell.client.client import Client, resume_hook
from stepwell.client.handles import RunHandle
from stepwell.client.streams import NewSignal
from stepwell.core.events import Recorded
from stepwell.engine.answering import PendingHook, Resumed
from stepwell.engine.chunks import OutputChunk
from stepwell.engine.inboxes import InboxEntry
from stepwell.engine.progress import MapProgress

__all__ = [
    "Client",
    "InboxEntry",
    "MapProgress",
    "NewSignal",
    "OutputChunk",
    "PendingHook",
    "Recorded",
    "Resumed",
    "RunHandle",
    "resume_hook",
]
