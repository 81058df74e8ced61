"""Laws that every run obeys, whatever dies, repeats or freezes on the way.

`check_deployment` holds all of them against all runs of a deployment, `check_facts` against one
run, `check_run` against one run of an environment, `check_history` against the events of one alone.
A broken law raises `AssertionError`, which says of which run, at which event and of what.
"""

from stepwell.testing.laws.checking import (
    Inspectable,
    check_deployment,
    check_facts,
    check_history,
    check_run,
)
from stepwell.testing.laws.families import check_children, check_families
from stepwell.testing.laws.forks import check_forks
from stepwell.testing.laws.inbox import check_entries, check_inbox, check_taken
from stepwell.testing.laws.lists import check_lists
from stepwell.testing.laws.log import (
    check_cancels,
    check_commits,
    check_folds,
    check_numbers,
    check_order,
    check_outcomes,
    check_times,
)
from stepwell.testing.laws.maps import check_maps
from stepwell.testing.laws.replays import check_replay
from stepwell.testing.laws.rest import (
    check_attempts,
    check_header,
    check_listed_hooks,
    check_open_hooks,
    check_recorded,
    check_reports,
    check_rest,
    check_timer,
    check_waits,
)
from stepwell.testing.laws.rows import (
    check_beginning,
    check_hook_rows,
    check_output,
    check_rows,
    check_step_rows,
    read_output,
)
from stepwell.testing.laws.steps import check_dispatches, check_steps
from stepwell.testing.laws.streams import check_notes, check_sequence, check_streams
from stepwell.testing.laws.subscriptions import (
    check_cuts,
    check_handlings,
    check_replays_of,
    check_subscription,
)
from stepwell.testing.laws.waits import check_hooks, check_timers

__all__ = [
    "Inspectable",
    "check_attempts",
    "check_beginning",
    "check_cancels",
    "check_children",
    "check_commits",
    "check_cuts",
    "check_deployment",
    "check_dispatches",
    "check_entries",
    "check_facts",
    "check_families",
    "check_folds",
    "check_forks",
    "check_handlings",
    "check_header",
    "check_history",
    "check_hook_rows",
    "check_hooks",
    "check_inbox",
    "check_listed_hooks",
    "check_lists",
    "check_maps",
    "check_notes",
    "check_numbers",
    "check_open_hooks",
    "check_order",
    "check_outcomes",
    "check_output",
    "check_recorded",
    "check_replay",
    "check_replays_of",
    "check_reports",
    "check_rest",
    "check_rows",
    "check_run",
    "check_sequence",
    "check_step_rows",
    "check_steps",
    "check_streams",
    "check_subscription",
    "check_taken",
    "check_timer",
    "check_timers",
    "check_times",
    "check_waits",
    "read_output",
]
