from __future__ import annotations

import enum
import functools
import json
import math
import os
import subprocess
import sys
import threading
from base64 import urlsafe_b64encode
from collections import Counter, deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from inspect import Parameter
from pathlib import Path
from typing import Annotated, Any, Generic, Literal, NamedTuple, NotRequired, TypeVar
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    PlainSerializer,
    SecretStr,
    computed_field,
    field_validator,
)
from typing_extensions import TypedDict

from stepwell.core.payload import (
    Arguments,
    Codec,
    Sizes,
    arguments,
    blob_hash,
    check_size,
    codec,
    digest,
    pack,
    returns,
    unpack,
)
from stepwell.errors import DefinitionError, PayloadError, PayloadTooLarge

OWNER = "step 'charge'"
T = TypeVar("T")
NOON = datetime(2030, 1, 1, 12, tzinfo=UTC)
INF = math.inf


class Color(enum.Enum):
    RED = "red"
    BLUE = 2


class Level(enum.IntEnum):
    LOW = 1


class Blob(BaseModel):
    data: bytes = b""
    tags: set[str] = set()


class Nested(BaseModel):
    blob: Blob
    extra: Any = None
    ratio: float = 1.0


@dataclass(frozen=True)
class Point:
    x: float
    raw: bytes = b""


@dataclass
class Holder:
    points: list[Point]
    blob: Blob = field(default_factory=Blob)


class Row(TypedDict):
    key: bytes
    count: NotRequired[int]


class Pair(NamedTuple):
    left: bytes
    right: set[int] = {1}  # noqa: RUF012


class Box(BaseModel, Generic[T]):
    item: T


class Tree(BaseModel):
    name: bytes
    kids: list[Tree] = []


class Camel(BaseModel):
    order_id: int = Field(alias="orderId")


class Renamed(BaseModel):
    order_id: int = Field(default=0, serialization_alias="out")


class Computed(BaseModel):
    model_config = ConfigDict(extra="forbid")
    x: int

    @computed_field  # type: ignore[prop-decorator]
    @property
    def double(self) -> int:
        return 2 * self.x


class Open(BaseModel):
    model_config = ConfigDict(extra="allow")


class Card(BaseModel):
    kind: Literal["card"] = "card"
    fee: int = 0


class Cash(BaseModel):
    kind: Literal["cash"] = "cash"
    fee: int = 0


class Base(BaseModel):
    x: int


class Derived(Base):
    y: int = 0


class Upper(BaseModel):
    name: str

    @field_validator("name")
    @classmethod
    def upper(cls, name: str) -> str:
        if name == "fail":
            raise KeyError("broken validator")
        if name != name.upper():
            raise ValueError("not in capitals")
        return name


def same(annotation: Any, value: Any) -> str:
    """Asserts that a value comes back equal and of its type; returns its text."""
    coder = codec(annotation, OWNER)
    text, seen = coder.round_trip(value)
    assert seen == value
    assert type(seen) is type(value)
    assert coder.encode(value) == text
    assert coder.decode(text) == value
    json.loads(text, parse_constant=pytest.fail)
    return text


def refused(annotation: Any, value: Any, path: str, reason: str = "") -> None:
    for method in (codec(annotation, OWNER).round_trip, codec(annotation, OWNER).encode):
        with pytest.raises(PayloadError) as caught:
            method(value)
        assert caught.value.owner == OWNER
        assert caught.value.path == path
        assert reason in caught.value.reason


# Declared types


def _named(value: object) -> str:
    """The same in every process, whatever the order of a set."""
    return str(sorted(value)) if isinstance(value, set | frozenset) else str(value)


@pytest.mark.parametrize(
    ("annotation", "value"),
    [
        (None, None),
        (bool, True),
        (int, 5),
        (int, 10**30),
        (str, 'a"\x00\x7f\u2028é😀'),
        (float, 1e16),
        (float, INF),
        (float, -INF),
        (list[float], [INF, 1.5, -0.0]),
        (bytes, b"\xff\x00"),
        (list[bytes], [b"\xff"]),
        (dict[int, bytes], {1: b"\xff"}),
        (dict[UUID, int], {UUID(int=1): 1}),
        (dict[Color, int], {Color.BLUE: 1, Color.RED: 2}),
        (set[str], {"b", "a"}),
        (set[bytes], {b"\xff"}),
        (frozenset[frozenset[int]], frozenset({frozenset({1})})),
        (tuple[int, str], (1, "a")),
        (tuple[int, ...], (1, 2)),
        (datetime, NOON),
        (datetime, datetime(2030, 1, 1, 12, 0, 0, 7, tzinfo=timezone(timedelta(hours=5.5)))),
        (date, date(2030, 1, 1)),
        (timedelta, timedelta(days=-1, microseconds=1)),
        (timedelta, timedelta.max),
        (Decimal, Decimal("1.10")),
        (UUID, UUID(int=7)),
        (Color, Color.BLUE),
        (Level, Level.LOW),
        (Literal["a", 1], 1),
        (int | None, None),
        (int | str, "1"),
        (int | str, 1),
        (float | None, INF),
        (datetime | date, date(2030, 1, 1)),
        (Card | Cash, Cash(fee=1)),
        (Annotated[Card | Cash, Field(discriminator="kind")], Cash()),
        (Blob, Blob(data=b"\xff", tags={"a"})),
        (list[Blob], [Blob(data=b"\xff")]),
        (Nested, Nested(blob=Blob(data=b"\xfe"), extra={"a": [1, None]}, ratio=INF)),
        (Point, Point(INF, b"\xff")),
        (Holder, Holder([Point(-INF, b"\xff")], Blob(data=b"\xff"))),
        (Row, {"key": b"\xff"}),
        (list[Row], [{"key": b"\xff", "count": 1}]),
        (Pair, Pair(b"\xff", {2})),
        (list[Pair], [Pair(b"\xff")]),
        (Box[bytes], Box[bytes](item=b"\xff")),
        (Box[list[Point]], Box[list[Point]](item=[Point(1.0, b"\xff")])),
        (Tree, Tree(name=b"\xff", kids=[Tree(name=b"\xfe")])),
        (Camel, Camel(orderId=1)),
        (Renamed, Renamed(order_id=5)),
        (Computed, Computed(x=1)),
        (Open, Open(a=1, b=[{"c": None}])),
        (Counter[str], Counter("aab")),
        (deque[int], deque([1, 2])),
        (Iterable[int], [1, 2]),
        (Sequence[int], [1, 2]),
        (Mapping[str, bytes], {"a": b"\xff"}),
        (dict, {"a": [1]}),
        (list, [1, "a", None]),
    ],
    ids=_named,
)
def test_a_value_comes_back_equal_and_of_its_type(annotation: Any, value: Any) -> None:
    same(annotation, value)


def test_not_a_number_comes_back() -> None:
    text, seen = codec(list[float], OWNER).round_trip([math.nan])
    assert text == '["NaN"]'
    assert math.isnan(seen[0])


def test_bytes_are_base64_wherever_they_are() -> None:
    text = codec(Holder, OWNER).encode(Holder([Point(1.0, b"\xff")], Blob(data=b"\xff")))
    assert json.loads(text) == {
        "points": [{"x": 1.0, "raw": "_w=="}],
        "blob": {"data": "_w==", "tags": []},
    }


def test_a_model_keeps_the_encoding_of_bytes_it_chose() -> None:
    class Hex(BaseModel):
        model_config = ConfigDict(ser_json_bytes="hex", val_json_bytes="hex")
        data: bytes

    assert same(Hex, Hex(data=b"\xff")) == '{"data":"ff"}'


def test_the_classes_of_users_keep_their_own_json() -> None:
    codec(Blob, OWNER).round_trip(Blob(data=b"\xff"))
    assert Blob(data=b"a").model_dump_json() == '{"data":"a","tags":[]}'


def test_an_alias_is_written_and_both_names_are_read() -> None:
    coder = codec(Camel, OWNER)
    assert coder.encode(Camel(orderId=1)) == '{"orderId":1}'
    assert coder.decode('{"orderId":1}') == coder.decode('{"order_id":1}') == Camel(orderId=1)


def test_an_instance_of_a_subclass_is_carried_as_the_declared_type() -> None:
    text, seen = codec(Base, OWNER).round_trip(Derived(x=1, y=2))
    assert text == '{"x":1}'
    assert type(seen) is Base


@pytest.mark.parametrize(
    ("annotation", "value", "seen"),
    [
        (int, "5", 5),
        (int, 5.0, 5),
        (float, 5, 5.0),
        (list[int], (1, 2), [1, 2]),
        (set[int], [1, 1], {1}),
        (Base, {"x": 1}, Base(x=1)),
        (list[Base], [{"x": "1"}], [Base(x=1)]),
        (Base, Base.model_construct(x="7"), Base(x=7)),
    ],
    ids=str,
)
def test_a_value_that_fits_after_coercion_is_coerced(
    annotation: Any, value: Any, seen: Any
) -> None:
    read = codec(annotation, OWNER).round_trip(value)[1]
    assert read == seen
    assert type(read) is type(seen)


@pytest.mark.parametrize(
    ("annotation", "value", "path"),
    [
        (int, "abc", "$"),
        (int, 5.5, "$"),
        (None, 5, "$"),
        (list[int], [1, "x"], "$[1]"),
        (dict[str, list[int]], {"a b": [1, None]}, '$["a b"][1]'),
        (dict[int, int], {7: "x"}, "$[7]"),
        (Nested, Nested(blob=Blob.model_construct(data=5)), "$.blob.data"),
        (Holder, Holder([Point("x")]), "$.points[0].x"),
        (Nested, Nested(blob=Blob(), extra=[1, {"when": NOON}]), "$.extra[1].when"),
        (Open, Open(a=NOON), "$.a"),
        (list, [1, NOON], "$[1]"),
        (dict, {"a": {1, 2}}, "$.a"),
        (dict, {1: 2}, "$[1]"),
        (object, NOON, "$"),
        (Card | Cash, 5, "$"),
        (int, None, "$"),
    ],
    ids=str,
)
def test_a_value_that_does_not_fit_is_refused_with_its_place(
    annotation: Any, value: Any, path: str
) -> None:
    refused(annotation, value, path)


@pytest.mark.parametrize(
    ("annotation", "value"),
    [
        (UUID | str, str(UUID(int=1))),
        (bytes | str, "abcd"),
        (Decimal | str, "1.0"),
        (date | str, "2030-01-01"),
        (list[int] | set[int], {1}),
    ],
    ids=str,
)
def test_a_union_that_would_bring_back_another_member_is_refused(
    annotation: Any, value: Any
) -> None:
    refused(annotation, value, "$", "union")


def test_an_iterator_is_refused_rather_than_read_up() -> None:
    refused(list[int], iter([1]), "$", "make it a list")
    refused(dict[str, Iterable[int]], {"a": iter([1])}, "$.a", "make it a list")


def test_a_secret_is_refused_rather_than_masked() -> None:
    refused(SecretStr, SecretStr("x"), "$", "secret")
    refused(dict[str, SecretStr], {"a": SecretStr("x")}, "$", "secret")


def test_a_type_without_json_is_named() -> None:
    refused(list[range], [range(3)], "$", "range")
    with pytest.raises(PayloadError, match="range"):
        codec(range, OWNER).schema()


def test_text_with_half_a_surrogate_pair_is_refused() -> None:
    refused(str, "\ud800", "$", "Unicode")
    refused(Parameter.empty, {"a": ["\ud800"]}, "$.a[0]", "Unicode")


def test_an_integer_too_long_to_be_read_is_refused() -> None:
    refused_int = 10**5000
    with pytest.raises(PayloadError):
        codec(int, OWNER).round_trip(refused_int)


def test_an_error_inside_a_validator_is_told_and_kept_as_the_cause() -> None:
    with pytest.raises(PayloadError, match="broken validator") as caught:
        codec(Upper, OWNER).decode('{"name":"fail"}')
    assert isinstance(caught.value.__cause__, KeyError)


@pytest.mark.parametrize(
    ("annotation", "text", "path", "reason"),
    [
        (int, '"abc"', "$", "integer"),
        (list[Nested], '[{"blob":{}},{"blob":{"tags":[1]}}]', "$[1].blob.tags[0]", "string"),
        (Nested, "{}", "$.blob", "required"),
        (Computed, '{"x":1,"y":2}', "$.y", "not permitted"),
        (dict[int, int], '{"1":"x"}', '$["1"]', "integer"),
        (Card | Cash, '{"fee":"x"}', "$.fee", "integer"),
        (Upper, '{"name":"a"}', "$.name", "not in capitals"),
        (Any, "[NaN]", "$[0]", "nan"),
        (int, "{", "$", "Invalid JSON"),
        (int, "", "$", "Invalid JSON"),
    ],
    ids=str,
)
def test_text_that_does_not_fit_any_more_is_refused(
    annotation: Any, text: str, path: str, reason: str
) -> None:
    with pytest.raises(PayloadError) as caught:
        codec(annotation, OWNER).decode(text)
    assert (caught.value.owner, caught.value.path) == (OWNER, path)
    assert reason in caught.value.reason


def test_a_reason_does_not_quote_the_value() -> None:
    with pytest.raises(PayloadError) as caught:
        codec(int, OWNER).round_trip("password")
    assert "password" not in str(caught.value)
    assert caught.value.__cause__ is None


# No declared type


@pytest.mark.parametrize(
    "value", [None, True, 0, 2**80, 1.5, "a", "é", [], [1, [2.5]], {"a": {"b": [None]}}], ids=str
)
@pytest.mark.parametrize("annotation", [Parameter.empty, Any], ids=str)
def test_plain_json_needs_no_annotation(annotation: Any, value: Any) -> None:
    same(annotation, value)


def test_a_tuple_without_annotation_becomes_a_list_on_the_first_pass_too() -> None:
    assert codec(Any, OWNER).round_trip({"a": (1, (2,))})[1] == {"a": [1, [2]]}


@pytest.mark.parametrize(
    ("value", "path", "reason"),
    [
        ({"items": [1, 2, 3, {"when": NOON}]}, "$.items[3].when", "datetime"),
        ({"a": {1: 2}}, "$.a", "key 1 is int"),
        ([1.5, INF], "$[1]", "inf"),
        (math.nan, "$", "nan"),
        (b"a", "$", "bytes"),
        ({1}, "$", "set"),
        (Color.RED, "$", "Color"),
        (Level.LOW, "$", "Level"),
        (Pair(b""), "$", "Pair"),
        (Base(x=1), "$", "Base"),
        (Counter("a"), "$", "Counter"),
        (Decimal(1), "$", "Decimal"),
    ],
    ids=str,
)
def test_other_values_need_an_annotation(value: Any, path: str, reason: str) -> None:
    refused(Parameter.empty, value, path, reason)
    refused(Any, value, path, "annotate the type")


def test_a_value_that_holds_itself_is_refused() -> None:
    circle: list[Any] = []
    circle.append(circle)
    with pytest.raises(PayloadError, match="holds itself"):
        codec(Any, OWNER).encode(circle)
    with pytest.raises(PayloadError):
        codec(list[Any], OWNER).encode(circle)


# Codecs


def test_the_quick_way_writes_what_the_slow_way_writes() -> None:
    for value in (None, True, False, 0, -7, 10**17, "", *map(chr, range(128))):
        assert codec(Any, OWNER).round_trip(value)[0] == codec(Any, OWNER).encode(value)
        coder = codec(Any, OWNER)
        coder.encode(value)
        assert coder.round_trip(value) == (coder.encode(value), value)


def test_a_subclass_of_a_scalar_does_not_take_the_quick_way() -> None:
    coder = codec(int, OWNER)
    coder.encode(1)
    assert type(coder.round_trip(Level.LOW)[1]) is int
    assert coder.round_trip(True) == ("1", 1)


def test_what_a_function_returns_is_resolved_when_it_is_needed() -> None:
    def load() -> Later: ...  # type: ignore[name-defined]  # noqa: F821

    coder = returns(load, OWNER)
    with pytest.raises(DefinitionError, match="'Later' of the return value"):
        coder.encode(1)
    load.__globals__["Later"] = list[bytes]
    try:
        assert coder.decode(coder.encode([b"\xff"])) == [b"\xff"]
    finally:
        del load.__globals__["Later"]


def test_a_function_without_return_annotation_returns_plain_json() -> None:
    def load():  # type: ignore[no-untyped-def]
        ...

    assert returns(load, OWNER).round_trip({"a": 1}) == ('{"a":1}', {"a": 1})
    with pytest.raises(PayloadError):
        returns(load, OWNER).encode(NOON)


def test_the_schema_describes_the_text() -> None:
    schema = json.loads(codec(Nested, OWNER).schema())
    assert schema["required"] == ["blob"]
    assert schema["$defs"]["Blob"]["properties"]["data"]["format"] == "base64url"
    assert json.loads(codec(Camel, OWNER).schema())["required"] == ["orderId"]
    assert json.loads(codec(Parameter.empty, OWNER).schema()) == {}


def test_threads_may_share_a_codec() -> None:
    coder, call = codec(Holder, OWNER), arguments(configured, OWNER)
    value, seen = Holder([Point(1.0)]), []
    barrier = threading.Barrier(8)

    def use() -> None:
        barrier.wait()
        seen.append((coder.round_trip(value)[1], call.digest((Blob(),), {})))

    threads = [threading.Thread(target=use) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [each[0] for each in seen] == [value] * 8
    assert len({each[1] for each in seen}) == 1


#: Annotations and values of them, for laws that hold for all.
plain = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=8,
)  # fmt: skip
numbers = st.floats(allow_nan=False)
points = st.builds(Point, numbers, st.binary())
blobs = st.builds(Blob, data=st.binary(), tags=st.sets(st.text()))
offsets = st.integers(-1439, 1439).map(lambda n: timezone(timedelta(minutes=n)))
moments = st.datetimes(
    min_value=datetime(1, 1, 3),  # noqa: DTZ001
    max_value=datetime(9999, 12, 29),  # noqa: DTZ001
    timezones=offsets,
)
LAWS: list[tuple[Any, st.SearchStrategy[Any]]] = [
    (Any, plain),
    (int, st.integers(-(10**4000), 10**4000)),
    (float, numbers),
    (str, st.text()),
    (bytes, st.binary()),
    (datetime, moments),
    (date, st.dates()),
    (timedelta, st.timedeltas()),
    (Decimal, st.decimals(allow_nan=False, allow_infinity=False)),
    (UUID, st.uuids()),
    (set[str], st.sets(st.text())),
    (dict[int, bytes], st.dictionaries(st.integers(-(2**63), 2**63 - 1), st.binary())),
    (dict[date, set[int]], st.dictionaries(st.dates(), st.sets(st.integers()))),
    (tuple[bytes, ...], st.lists(st.binary()).map(tuple)),
    (list[Point], st.lists(points)),
    (Blob, blobs),
    (Holder, st.builds(Holder, st.lists(points), blobs)),
    (Row, st.fixed_dictionaries({"key": st.binary()}, optional={"count": st.integers()})),
    (Pair, st.builds(Pair, st.binary(), st.sets(st.integers()))),
    (int | str | None, st.none() | st.integers() | st.text()),
    (Card | Cash, st.builds(Card, fee=st.integers()) | st.builds(Cash, fee=st.integers())),
    (Nested, st.builds(Nested, blob=blobs, extra=plain, ratio=numbers)),
]
CODECS = [(codec(annotation, OWNER), values) for annotation, values in LAWS]


@given(st.one_of([st.tuples(st.just(coder), values) for coder, values in CODECS]))
def test_every_value_comes_back(case: tuple[Codec, Any]) -> None:
    coder, value = case
    text, seen = coder.round_trip(value)
    assert seen == value
    assert type(seen) is type(value)
    assert coder.decode(text) == seen
    assert coder.round_trip(seen)[1] == seen
    json.loads(text, parse_constant=pytest.fail)


@given(plain | st.dates() | st.binary() | st.sets(st.integers()) | st.floats() | st.uuids())
def test_a_value_without_annotation_comes_back_or_is_refused(value: Any) -> None:
    try:
        seen = codec(Any, OWNER).round_trip([value])[1]
    except PayloadError:
        return
    assert seen == [value]
    assert type(seen[0]) is type(value)


# Arguments


def nothing() -> None: ...


def single(x: int) -> None: ...


def pay(order: Blob, amount: Decimal, *, urgent: bool = False, note: str = "none") -> None: ...


def configured(blob: Blob, tags: set[str] = frozenset()) -> None: ...  # type: ignore[assignment]


def everything(a: int, /, b: bytes, *rest: float, c: str = "c", **more: Point) -> None: ...


def unannotated(a, b=None):  # type: ignore[no-untyped-def]
    ...


MISSING: Any = object()


def sentinel(x: int, limit: int = MISSING, name: str = None, tags: set[str] = frozenset()) -> None:  # type: ignore[assignment]  # noqa: RUF013
    ...


def call(function: Any, *args: Any, **kwargs: Any) -> tuple[Arguments, Any, Any]:
    return arguments(function, OWNER), args, kwargs


def test_a_call_is_an_object_by_parameter_name_with_defaults_filled_in() -> None:
    coder, args, kwargs = call(pay, Blob(data=b"\xff"), Decimal("1.10"), note="hi")
    text = coder.encode(args, kwargs)
    assert text == (
        '{"order":{"data":"_w==","tags":[]},"amount":"1.10","urgent":false,"note":"hi"}'
    )
    assert coder.decode(text) == (args, {"urgent": False, "note": "hi"})


def test_variable_arguments_go_under_their_names() -> None:
    coder, args, kwargs = call(everything, 1, b"\xff", INF, 2.0, c="d", p=Point(1.0, b"\xff"))
    text = coder.encode(args, kwargs)
    assert json.loads(text) == {
        "a": 1,
        "b": "_w==",
        "rest": ["Infinity", 2.0],
        "c": "d",
        "more": {"p": {"x": 1.0, "raw": "_w=="}},
    }
    assert coder.decode(text) == (args, kwargs)


def test_no_arguments_are_an_empty_object() -> None:
    coder, args, kwargs = call(nothing)
    assert coder.encode(args, kwargs) == "{}"
    assert coder.decode("{}") == ((), {})


def test_decoding_takes_defaults_for_what_is_missing() -> None:
    coder = arguments(pay, OWNER)
    args, kwargs = coder.decode('{"order":{},"amount":"2"}')
    assert args == (Blob(), Decimal(2))
    assert kwargs == {"urgent": False, "note": "none"}


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ('{"x":1,"y":2}', "$.y"),
        ("{}", "$.x"),
        ('{"x":"a"}', "$.x"),
        ("[1]", "$"),
        ("null", "$"),
    ],
)
def test_arguments_that_do_not_fit_are_refused(text: str, path: str) -> None:
    with pytest.raises(PayloadError) as caught:
        arguments(single, OWNER).decode(text)
    assert caught.value.path == path


@pytest.mark.parametrize(
    ("args", "kwargs"),
    [((), {}), ((1, 2), {}), ((1,), {"x": 1}), ((), {"y": 1}), ((1,), {"y": 1})],
)
def test_a_call_the_function_would_not_take_is_a_type_error(args: Any, kwargs: Any) -> None:
    with pytest.raises(TypeError):
        arguments(single, OWNER).encode(args, kwargs)
    with pytest.raises(TypeError, match="charge"):
        arguments(single, OWNER).digest(args, kwargs)


def test_a_positional_only_parameter_is_not_taken_by_name() -> None:
    def strict(a: int, /) -> None: ...

    with pytest.raises(TypeError):
        arguments(strict, OWNER).encode((), {"a": 1})


def test_an_argument_of_the_wrong_type_is_refused_with_its_place() -> None:
    coder, args, kwargs = call(everything, 1, b"", 1.0, "x")
    for method in (coder.encode, coder.digest):
        with pytest.raises(PayloadError) as caught:
            method(args, kwargs)
        assert caught.value.path == "$.rest[1]"


def test_parameters_without_annotation_take_plain_json() -> None:
    coder = arguments(unannotated, OWNER)
    assert coder.decode(coder.encode(({"x": 1},), {})) == (({"x": 1}, None), {})
    with pytest.raises(PayloadError) as caught:
        coder.encode((1,), {"b": [NOON]})
    assert caught.value.path == "$.b[0]"


def test_defaults_need_not_fit_their_annotation() -> None:
    coder = arguments(sentinel, OWNER)
    text = coder.encode((1,), {})
    assert json.loads(text) == {"x": 1, "name": None, "tags": []}
    args, _ = coder.decode(text)
    assert args[1] is MISSING
    assert args[2] is None
    assert json.loads(coder.encode((1, 2, "n", {"t"}), {})) == {
        "x": 1, "limit": 2, "name": "n", "tags": ["t"],
    }  # fmt: skip


def test_decorated_and_partial_functions_show_their_own_parameters() -> None:
    @functools.wraps(pay)
    def wrapper(*args: Any, **kwargs: Any) -> None: ...

    text = '{"order":{"data":"_w==","tags":[]},"amount":"1"}'
    assert arguments(wrapper, OWNER).decode(text)[0][0] == Blob(data=b"\xff")
    assert arguments(functools.partial(pay, Blob()), OWNER).decode('{"amount":"1"}')[0] == (1,)


def test_local_types_that_the_function_uses_are_resolved() -> None:
    class Local(BaseModel):
        data: bytes

    def step(item: Local) -> Local:
        return Local(data=item.data)

    coder = arguments(step, OWNER)
    assert coder.decode(coder.encode((Local(data=b"\xff"),), {})) == ((Local(data=b"\xff"),), {})


def test_an_annotation_that_cannot_be_resolved_is_named() -> None:
    def step(a: int, item: Nowhere) -> None: ...  # type: ignore[name-defined]  # noqa: F821

    with pytest.raises(DefinitionError, match=r"'Nowhere' of parameter 'item'"):
        arguments(step, OWNER).encode((1, 2), {})


def test_something_without_a_signature_is_refused() -> None:
    with pytest.raises(DefinitionError):
        arguments(5, OWNER)  # type: ignore[arg-type]


def test_the_input_schema_describes_the_object() -> None:
    schema = json.loads(arguments(pay, OWNER).schema())
    assert schema["type"] == "object"
    assert schema["required"] == ["order", "amount"]
    assert schema["additionalProperties"] is False
    assert schema["properties"]["note"]["default"] == "none"


@given(st.integers(), st.binary(), st.lists(numbers), st.text(), st.dictionaries(
    st.text().filter(lambda name: name not in ("b", "c")), points))  # fmt: skip
def test_every_call_comes_back(
    a: int, b: bytes, rest: list[float], c: str, more: dict[str, Point]
) -> None:
    coder = arguments(everything, OWNER)
    args, kwargs = (a, b, *rest), {"c": c, **more}
    assert coder.decode(coder.encode(args, kwargs)) == (args, kwargs)


# Digests


def of(function: Any, *args: Any, **kwargs: Any) -> str:
    return arguments(function, OWNER).digest(args, kwargs)


def test_a_digest_is_24_hex_digits_of_the_canonical_text() -> None:
    assert of(single, 5) == digest('{"x":5}')
    assert of(nothing) == digest("{}")
    assert len(digest("")) == 24
    assert int(digest("x"), 16)


def test_the_way_of_passing_does_not_matter() -> None:
    assert of(single, 5) == of(single, x=5)
    assert of(pay, Blob(), Decimal(1)) == of(pay, amount=Decimal(1), order=Blob())


def test_different_calls_have_different_digests() -> None:
    digests = [
        of(single, 5), of(single, 6), of(everything, 1, b""), of(everything, 1, b"", 0.0),
        of(everything, 1, b"", p=Point(1.0)), of(everything, 1, b"", c=""), of(nothing),
        of(unannotated, Color.RED.value), of(unannotated, [1, 2]), of(unannotated, [2, 1]),
    ]  # fmt: skip
    assert len(set(digests)) == len(digests)


def test_a_new_parameter_with_a_default_changes_nothing() -> None:
    def before(b: float, a: Blob) -> None: ...
    def after(
        b: float,
        a: Blob,
        *rest: int,
        c: dict[str, float] | None = None,
        d: bytes = b"\xff",
        e: Point = Point(1.0),
        **more: int,
    ) -> None: ...

    values = (1e16, Blob(data=b"\xff", tags={"x", "y"}))
    assert of(before, *values) == of(after, *values)


def test_a_new_parameter_that_cannot_use_aliases_changes_nothing() -> None:
    def before(a: Camel) -> None: ...
    def after(a: Camel, b: Renamed = Renamed()) -> None: ...  # noqa: B008

    assert of(before, Camel(orderId=1)) == of(after, Camel(orderId=1))
    recorded = arguments(before, OWNER).encode((Camel(orderId=1),), {})
    assert arguments(after, OWNER).decode(recorded) == ((Camel(orderId=1), Renamed()), {})


def test_an_argument_equal_to_its_default_is_left_out() -> None:
    assert of(pay, Blob(), Decimal(1)) == of(pay, Blob(), Decimal(1), urgent=False, note="none")
    assert of(pay, Blob(), Decimal(1)) != of(pay, Blob(), Decimal(1), urgent=True)


def test_a_number_in_a_flat_and_in_a_nested_call_looks_the_same() -> None:
    def flat(x: int, name: str, at: datetime) -> None: ...
    def nested(x: int, name: str, at: datetime, more: dict[str, float] = {}) -> None: ...  # noqa: B006

    values = (2**70, 'é"\x00\x1f\x7f\u2028\\/', NOON)
    assert of(flat, *values) == of(nested, *values)


def test_new_fields_of_models_with_defaults_change_nothing() -> None:
    class V1(BaseModel):
        x: int

    class V2(BaseModel):
        y: str = "y"
        x: int
        z: list[int] = Field(default_factory=list)
        p: Point = Point(1.0)

    @dataclass
    class V3:
        x: int
        z: list[int] = field(default_factory=list)
        y: float = 2.0

    def one(v: V1) -> V1:
        return V1(x=v.x)

    def two(v: V2) -> V2:
        return V2(x=v.x)

    def three(v: V3) -> V3:
        return V3(x=v.x)

    assert of(one, V1(x=1)) == of(two, V2(x=1)) == of(three, V3(x=1))
    assert of(two, V2(x=1)) != of(two, V2(x=1, z=[1]))


def test_members_of_a_discriminated_union_keep_apart() -> None:
    def either(p: Card | Cash) -> None: ...
    def tagged(p: Annotated[Card | Cash, Field(discriminator="kind")]) -> None: ...

    for function in (either, tagged):
        assert of(function, Card(fee=1)) != of(function, Cash(fee=1))
        assert of(function, Card()) != of(function, Cash())


def test_the_order_of_keys_does_not_matter() -> None:
    def step(a: dict[str, Any], b: Row) -> None: ...

    left = of(step, {"x": 1, "y": {"p": 1, "q": 2}}, {"key": b"k", "count": 1})
    right = of(step, {"y": {"q": 2, "p": 1}, "x": 1}, {"count": 1, "key": b"k"})
    assert left == right


def test_elements_of_a_named_tuple_count_also_at_their_default() -> None:
    def step(p: Pair) -> None: ...

    assert len({of(step, Pair(b"")), of(step, Pair(b"", {2})), of(step, Pair(b"x"))}) == 3


def test_a_serializer_of_the_user_cannot_bring_disorder() -> None:
    def step(x: Annotated[int, PlainSerializer(lambda x: {"b": x, "a": x})]) -> None: ...

    assert of(step, 1) == digest('{"x":{"a":1,"b":1}}')


@given(st.permutations(["a", "b", "c", "d", "e"]))
def test_the_order_in_which_a_set_was_filled_does_not_matter(order: list[str]) -> None:
    assert of(configured, Blob(tags=set(order))) == of(configured, Blob(tags=set("abcde")))


HASHED = """
import sys
from dataclasses import dataclass
from pydantic import BaseModel
from stepwell.core.payload import arguments

@dataclass(frozen=True)
class Tag:
    name: str
    weight: float = 1.0

class Model(BaseModel):
    tags: set[Tag]
    groups: frozenset[frozenset[str]]
    kids: list['Model'] = []

def step(model: Model, names: set[str], *, pairs: set[tuple[str, int]] = {("z", 1)}, **more: set[bytes]): ...

names = {f"n{i}" for i in range(20)}
model = Model(tags={Tag(n) for n in names}, groups={frozenset(names), frozenset({"a", "b"})})
model = Model(tags=set(), groups=set(), kids=[model])
call = ((model, names), {"pairs": {(n, 1) for n in names}, "extra": {n.encode() for n in names}})
print(arguments(step, "step").digest(*call))
"""


def test_the_digest_is_the_same_in_every_process() -> None:
    engine = str(Path(sys.modules["stepwell"].__path__[0]).parent)
    digests = set()
    for seed in ("0", "1", "2", "12345"):
        env = {**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": engine}
        ran = subprocess.run(
            [sys.executable, "-c", HASHED], env=env, capture_output=True, text=True, check=True
        )
        digests.add(ran.stdout.strip())
    names = sorted(f"n{i}" for i in range(20))
    kid = {"groups": [["a", "b"], names], "tags": [{"name": name} for name in names]}
    canonical = {
        "model": {"groups": [], "kids": [kid], "tags": []},
        "more": {"extra": sorted(urlsafe_b64encode(name.encode()).decode() for name in names)},
        "names": names,
        "pairs": [[name, 1] for name in names],
    }
    assert digests == {digest(json.dumps(canonical, separators=(",", ":")))}


def test_known_digests_stay() -> None:
    """Recorded histories hold digests: these may never change."""
    assert digest("{}") == "bf78e4a953b40eee238ca2e9"
    assert of(single, 5) == "9b06fb7bc72cf134b4a16212"


scalars = st.none() | st.booleans() | st.integers() | st.text() | st.characters(codec="ascii")


@given(scalars, st.integers(), st.characters(codec="ascii") | st.text(), scalars)
def test_the_short_way_for_scalars_gives_the_same_digest(
    first: Any, count: int, text: str, default: Any
) -> None:
    def short(z: Any, count: int, text: str, given: Any = 1) -> None: ...
    def long(
        z: Annotated[Any, "long"],
        count: Annotated[int, "long"],
        text: Annotated[str, "long"],
        given: Annotated[Any, "long"] = 1,
    ) -> None: ...

    for more in ((), (default,)):
        assert of(short, first, count, text, *more) == of(long, first, count, text, *more)
    assert of(short, True, 1, "") != of(short, 1, 1, "")


# Sizes and blobs


def test_the_size_is_counted_in_bytes() -> None:
    assert check_size("é😀a", OWNER, Sizes()) == 7


def test_a_value_at_the_limit_passes_and_one_above_is_refused() -> None:
    sizes = Sizes(hard_limit=10)
    assert check_size("x" * 10, OWNER, sizes) == 10
    with pytest.raises(PayloadTooLarge) as caught:
        check_size("é" * 6, OWNER, sizes)
    assert (caught.value.owner, caught.value.size, caught.value.limit) == (OWNER, 12, 10)


@given(st.text())
def test_a_blob_unpacks_to_its_text(text: str) -> None:
    assert unpack(pack(text)) == text


def test_a_large_text_is_packed_smaller() -> None:
    assert len(pack("abc" * 10_000)) < 1_000


def test_a_damaged_blob_is_refused() -> None:
    with pytest.raises(ValueError, match="damaged"):
        unpack(b"nonsense")


def test_a_blob_is_named_by_the_hash_of_its_text() -> None:
    assert blob_hash("") == "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"


def test_texts_of_equal_values_have_one_canonical_text() -> None:
    class Given(BaseModel):
        a: int = 0
        b: list[int] = []
        c: str = "c"

    carried = codec(Given, "a context")
    assert carried.canonical('{"c":"c","b":[1],"a":2}') == carried.canonical('{"a":2,"b":[1]}')
    assert carried.canonical('{"a":0}') == "{}"
    with pytest.raises(PayloadError, match="a context"):
        carried.canonical('{"a":"x"}')
