"""Declarations that cannot work are refused where they stand."""

from __future__ import annotations

from typing import Any

import pytest

from stepwell import DefinitionError, step, workflow


def test_a_retry_that_is_no_policy_is_refused() -> None:
    wrong: Any = 3
    with pytest.raises(DefinitionError, match=r"step 'fragile': retry takes a RetryPolicy.*not 3"):

        @step(retry=wrong)
        async def fragile() -> None: ...


@pytest.mark.parametrize("decorate", [step, workflow])
def test_a_method_is_refused(decorate: Any) -> None:
    with pytest.raises(DefinitionError, match="a method cannot be recorded"):

        class Shop:
            @decorate
            async def sell(self, order: str) -> None: ...
