"""No conditional expression of an adapter is without a mutation, or without a reason."""

from __future__ import annotations

import pytest

from tests.mutations.conditionals import Conditional, conditionals, conditionals_of
from tests.mutations.conditions import MUTATIONS

#: What may be taken away without harm, by module and text, and why.
WITHOUT_HARM = {
    (
        "adapters/local/queue.py",
        "visible_at IS NULL",
    ): "only the oldest of a group has a time, and what is promoted was not the oldest",
    (
        "adapters/local/queue.py",
        "visible_at IS NOT NULL",
    ): "the least of times leaves out what has none; the term names the index",
    ("adapters/local/step_queue.py", "run_id = ?"): "what is shown of a run, and decides nothing",
    ("adapters/local/step_queue.py", "{_HELD}"): "its terms stand in a text of their own",
    ("adapters/local/step_queue.py", "place = ?"): "names the row",
    ("adapters/local/maps.py", "{_OF}"): "its terms stand in a text of their own",
    **{
        ("adapters/local/maps.py", f"{name} = ?"): "names the shard"
        for name in ("run_id", "map", "map_order", "shard")
    },
    ("adapters/local/streams.py", "{_OF}"): "its terms stand in a text of their own",
    **{
        ("adapters/local/streams.py", f"{name} = ?"): "names the stream run"
        for name in ("stream", "stream_run")
    },
    ("adapters/local/dead_letters.py", "message_id = ?"): "names the row",
    ("adapters/local/scripts.py", "recency <= ?"): "who was born before is nobody's child",
}


def _covered(conditional: Conditional, spans: list[tuple[int, int]]) -> bool:
    return any(begin < conditional.end and conditional.begin < end for begin, end in spans)


def test_every_conditional_expression_of_the_adapters_has_a_mutation() -> None:
    spans: dict[str, list[tuple[int, int]]] = {}
    for mutation in (each for each in MUTATIONS if each.module.startswith("adapters/")):
        source = mutation.path.read_text(encoding="utf-8")
        spans.setdefault(mutation.module, []).append(mutation.span(source))
    bare = [
        str(each)
        for each in conditionals()
        if not _covered(each, spans.get(each.module, []))
        and (each.module, each.text) not in WITHOUT_HARM
    ]
    assert not bare, "without a mutation:\n" + "\n".join(bare)


def test_what_is_without_harm_is_still_there() -> None:
    known = {(each.module, each.text) for each in conditionals()}
    assert set(WITHOUT_HARM) <= known


@pytest.mark.parametrize(
    ("source", "texts"),
    [
        ("put(item, RunItem.pk.does_not_exist())", ["RunItem.pk.does_not_exist()"]),
        ("put(item, (StepItem.revision == n) & (a == b))", ["StepItem.revision == n"]),
        ("note = Path(['n'])\nput(item, note == 1)", ["note == 1"]),
        ("put_object(Key='k', IfNoneMatch='*')", ["IfNoneMatch='*'"]),
        (
            "change('INSERT INTO hooks (a) VALUES (?) ON CONFLICT (a) DO NOTHING')",
            ["ON CONFLICT (a) DO NOTHING"],
        ),
        (
            "change('UPDATE hooks SET a = ? WHERE run_id = ? AND (a, b) = (?, ?) AND a IS NULL')",
            ["(a, b) = (?, ?)", "a IS NULL"],
        ),
        ("change(f'UPDATE x SET a = ? WHERE {KEY} AND b > ? RETURNING a')", ["{KEY}", "b > ?"]),
        (
            "change('INSERT INTO x (a) VALUES (?)'\n' ON CONFLICT DO NOTHING')",
            ["ON CONFLICT DO NOTHING"],
        ),
        ("HELD = 'place = ? AND count = ?'", ["place = ?", "count = ?"]),
        ("text = 'nothing like it WHERE it is'", []),
        ("change('CREATE INDEX i ON x (a) WHERE a > 1')", []),
    ],
)
def test_conditional_expressions_are_found(source: str, texts: list[str]) -> None:
    assert sorted(each.text for each in conditionals_of("module", source)) == sorted(texts)
