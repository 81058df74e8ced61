"""Code that changes under its runs: a shop, and what is deployed in its place.

Calling an entry of `DEPLOYMENTS` registers other code for the name.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from examples.outside import outside
from stepwell import current, hook, sleep, step, workflow
from stepwell.authoring.decorators import Workflow
from stepwell.authoring.registry import registry
from tests.acceptance.doing import do


@workflow(name="acceptance.shop")
async def shop() -> str:
    await do("charge")
    await do("ship")
    return f"{await hook('received')} {await do('thank')}"


def _new_at_the_end() -> None:
    @workflow(name="acceptance.shop")
    async def shop() -> str:
        await do("charge")
        await do("ship")
        received = await hook("received")
        await do("ask for a review")
        return f"{received} {await do('thank')}"


def _inserted() -> None:
    @workflow(name="acceptance.shop")
    async def shop() -> str:
        await do("charge")
        await do("insure")
        await do("ship")
        return f"{await hook('received')} {await do('thank')}"


def _reordered() -> None:
    @workflow(name="acceptance.shop")
    async def shop() -> str:
        await do("ship")
        await do("charge")
        return f"{await hook('received')} {await do('thank')}"


def _removed() -> None:
    @workflow(name="acceptance.shop")
    async def shop() -> str:
        await do("charge")
        return f"{await hook('received')} {await do('thank')}"


def _renamed() -> None:
    @step(name="acceptance.perform")
    async def do_it(what: str) -> str:
        outside().request("done", current.idempotency_key, what)
        return what

    @workflow(name="acceptance.shop")
    async def shop() -> str:
        await do("charge")
        await do_it("ship")
        return f"{await hook('received')} {await do('thank')}"


def _other_type() -> None:
    @step(name="acceptance.do")
    async def do_number(what: str) -> int:
        outside().request("done", current.idempotency_key, what)
        return len(what)

    @workflow(name="acceptance.shop")
    async def shop() -> str:
        await do_number("charge")
        await do_number("ship")
        return f"{await hook('received')} {await do_number('thank')}"


def _ends_early() -> None:
    @workflow(name="acceptance.shop")
    async def shop() -> str:
        return await do("charge")


def _other_kind() -> None:
    @workflow(name="acceptance.shop")
    async def shop() -> str:
        await do("charge")
        await sleep("1h")
        return f"{await hook('received')} {await do('thank')}"


def _other_kind_of_wait() -> None:
    @workflow(name="acceptance.shop")
    async def shop() -> str:
        await do("charge")
        await do("ship")
        await sleep("1h")
        return await do("thank")


def _as_before() -> None:
    @workflow(name="acceptance.shop")
    async def shop_again() -> str:
        await do("charge")
        await do("ship")
        return f"{await hook('received')} {await do('thank')}"


async def _later() -> str:
    return str(await hook("received"))


def _deployed_later() -> Workflow[[], Any]:
    return workflow(name="acceptance.later")(_later)


with registry.isolated():
    #: What callers know and no worker does.
    UNKNOWN: dict[str, Workflow[..., Any]] = {"acceptance.later": _deployed_later()}

DEPLOYMENTS: dict[str, Callable[[], object]] = {
    "new at the end": _new_at_the_end,
    "inserted": _inserted,
    "reordered": _reordered,
    "removed": _removed,
    "renamed": _renamed,
    "other type": _other_type,
    "ends early": _ends_early,
    "other kind": _other_kind,
    "other kind of wait": _other_kind_of_wait,
    "as before": _as_before,
    "later": _deployed_later,
}
