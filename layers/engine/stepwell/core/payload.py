"""Values as JSON text, by declared type; arguments of a call as one JSON object.

The text alone says nothing of types: the annotation does, on both ways. Never pickle, no tags in
the data. A first pass must see what a replay will see, so it works with `round_trip`, not with the
value it was given. Without an annotation only plain JSON is taken, and anything else is refused
rather than changed.

Digests identify a call: equal in every process, and the same when a parameter with a default is
added. They are not secret-keeping hashes.
"""

from __future__ import annotations

import hashlib
import inspect
import json
import typing
import zlib
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from inspect import Parameter
from json.encoder import encode_basestring
from types import UnionType
from typing import Any, Final, NoReturn

from pydantic import GetCoreSchemaHandler
from pydantic_core import CoreSchema, core_schema

from stepwell.core.annotations import resolve
from stepwell.core.misfit import Misfit
from stepwell.core.records import Payload
from stepwell.core.wire import Wire
from stepwell.errors import DefinitionError, PayloadError, PayloadTooLarge


def digest(text: str) -> str:
    """24 hex digits that stand for a text."""
    return hashlib.blake2b(text.encode(), digest_size=12).hexdigest()


# One value


class Codec:
    """To JSON text and back, for one type. Compiled on first use, so that forward references may
    resolve late; apart from that it never changes, and threads may share it.

    All methods raise `PayloadError` with the owner and the place in the value.
    """

    __slots__ = ("_annotation", "_identical", "_wire", "owner")

    def __init__(self, annotation: Callable[[], Any], owner: str) -> None:
        self.owner = owner
        self._annotation = annotation
        self._wire: Wire | None = None
        self._identical = _NO_TYPE

    def encode(self, value: Any) -> Payload:
        """JSON text of a value, known to decode. A value that fits after coercion is coerced."""
        try:
            return (self._wire or self._compiled()).round_trip(value)[0]
        except Misfit as misfit:
            _refuse(self.owner, misfit)

    def decode(self, text: Payload) -> Any:
        """The value a text stands for."""
        try:
            return (self._wire or self._compiled()).load(text)
        except Misfit as misfit:
            _refuse(self.owner, misfit)

    def round_trip(self, value: Any) -> tuple[Payload, Any]:
        """The text of a value, and `decode` of it: what every later pass will see."""
        if type(value) in self._identical:
            text = _scalar_text(value)
            if text is not None:
                return text, value
        try:
            return (self._wire or self._compiled()).round_trip(value)
        except Misfit as misfit:
            _refuse(self.owner, misfit)

    def canonical(self, text: Payload) -> str:
        """The text of an equal value, whoever wrote it: sorted, defaults of fields left out."""
        try:
            wire = self._wire or self._compiled()
            plain = json.loads(wire.canonical(wire.load(text)))
        except Misfit as misfit:
            _refuse(self.owner, misfit)
        return json.dumps(plain, sort_keys=True, ensure_ascii=False)

    def schema(self) -> str:
        """JSON schema of the texts that `decode` takes."""
        try:
            return (self._wire or self._compiled()).schema()
        except Misfit as misfit:
            _refuse(self.owner, misfit)

    def _compiled(self) -> Wire:
        annotation = self._annotation()
        if annotation is Parameter.empty:
            annotation = Any
        wire = Wire(annotation)
        self._identical = _identical(annotation)
        self._wire = wire
        return wire


def codec(annotation: Any, owner: str) -> Codec:
    """The codec of a resolved annotation; `Parameter.empty` stands for none.

    `owner` says in errors whose value it is, such as "step 'charge'".
    """
    return Codec(lambda: annotation, owner)


@lru_cache(maxsize=512)
def json_codec(owner: str) -> Codec:
    """The codec of plain JSON. Made once for each of so many owners, for it is costly to make."""
    return codec(Any, owner)


def returns(
    function: Callable[..., Any], owner: str, part: Callable[[Any], Any] | None = None
) -> Codec:
    """The codec of what a function is declared to return, or of a part of that annotation.

    The annotation is resolved on first use; `DefinitionError` if it cannot be.
    """

    def annotation() -> Any:
        whole = resolve(function, "return", owner)
        return whole if part is None else part(whole)

    return Codec(annotation, owner)


#: Annotations with the types of which a value is surely what it will be read as.
_IDENTICAL: Final[tuple[tuple[Any, frozenset[type]], ...]] = (
    (Any, frozenset({type(None), bool, int, str})),
    (None, frozenset({type(None)})),
    (type(None), frozenset({type(None)})),
    (bool, frozenset({bool})),
    (int, frozenset({int})),
    (str, frozenset({str})),
)
_NO_TYPE: Final[frozenset[type]] = frozenset()


def _identical(annotation: Any) -> frozenset[type]:
    # By identity, for an annotation need not be hashable.
    return next((kinds for kind, kinds in _IDENTICAL if kind is annotation), _NO_TYPE)


def _scalar_text(value: Any) -> str | None:
    """JSON text of None, a bool, an int or a str; None where the slow way has to look."""
    if value is None:
        return "null"
    if value is True:
        return "true"
    if value is False:
        return "false"
    if type(value) is str:
        # Others may hold a lone surrogate, which no text may.
        return encode_basestring(value) if value.isascii() else None
    # Python refuses to print or read integers of more than 4,300 digits.
    return str(value) if -_PRINTABLE < value < _PRINTABLE else None


_PRINTABLE: Final = 10**18


def _refuse(owner: str, misfit: Misfit) -> NoReturn:
    raise PayloadError(owner, misfit.path, misfit.reason) from misfit.__cause__


# A call's arguments

_EMPTY_DIGEST: Final = digest("{}")


class Arguments:
    """The arguments of one function as a JSON object: parameter name to value.

    `*args` is a list and `**kwargs` an object under its own name. Compiled on first use; apart from
    that it never changes, and threads may share it.
    """

    __slots__ = (
        "_absent",
        "_constant",
        "_function",
        "_parameters",
        "_plan",
        "_scalars",
        "_wire",
        "owner",
    )

    def __init__(
        self, function: Callable[..., Any], owner: str, parameters: tuple[Parameter, ...]
    ) -> None:
        self.owner = owner
        self._function = function
        self._parameters = parameters
        self._plan = _Plan.of(parameters)
        self._wire: Wire | None = None
        self._absent: frozenset[str] = frozenset()
        #: The types of the values whose JSON needs no schema, by parameter.
        self._scalars: Mapping[str, frozenset[type]] = {}
        #: The types of the values that need no copy, by parameter.
        self._constant: Mapping[str, frozenset[type]] = {}

    def encode(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Payload:
        """A call as JSON text, defaults filled in: a later change of them does not change it.

        Raises `TypeError` for arguments that the function does not take.
        """
        given = self._bind(args, kwargs)
        try:
            wire = self._wire or self._compiled()
            return wire.round_trip(self._filled(given))[0]
        except Misfit as misfit:
            _refuse(self.owner, misfit)

    def decode(self, text: Payload) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The arguments to call the function with. Unknown names are refused."""
        try:
            values: dict[str, Any] = (self._wire or self._compiled()).load(text)
        except Misfit as misfit:
            _refuse(self.owner, misfit)
        plan = self._plan
        args = tuple(values[name] for name in plan.positional)
        kwargs = {name: values[name] for name in plan.keyword_only}
        if plan.var_positional:
            args += tuple(values[plan.var_positional])
        if plan.var_keyword:
            kwargs.update(values[plan.var_keyword])
        return args, kwargs

    def kept(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Payload | None:
        """A call as JSON text, for who takes it up when what was given may have been changed.

        None if nobody can change it and it reads back as it is, and also if it has no text: then
        the arguments stand for themselves. Raises `TypeError` as `encode` does.
        """
        if self._stands(args, kwargs):
            return None
        try:
            return self.encode(args, kwargs)
        except PayloadError:
            return None

    def _stands(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> bool:
        """Whether nobody can change any of these, and each reads back as it is."""
        positional, constant = self._plan.positional, self._constant
        if len(args) > len(positional):
            return False
        n = 0
        for value in args:
            if type(value) not in constant.get(positional[n], _NO_TYPE):
                return False
            n += 1  # noqa: SIM113 - each step of a run comes through here: quicker than enumerate
        return not kwargs or all(
            type(value) in constant.get(name, _NO_TYPE) for name, value in kwargs.items()
        )

    def plain(
        self, args: tuple[Any, ...], kwargs: Mapping[str, Any], text: Payload | None = None
    ) -> tuple[list[Any], dict[str, Any]]:
        """The arguments of a call as plain JSON, given as they were given; defaults left out.

        `text` is what was kept of the call, if something was.
        """
        values = json.loads(self.encode(args, kwargs) if text is None else text)
        plan = self._plan
        positional = [values[name] for name in plan.positional[: len(args)]]
        if plan.var_positional:
            positional += values[plan.var_positional]
        named = {
            name: values[name] if name in plan.by_name else values[plan.var_keyword][name]
            for name in kwargs
        }
        return positional, named

    def from_plain(
        self, args: list[Any], kwargs: Mapping[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The arguments to call the function with, from what `plain` may have given.

        Raises `TypeError` for arguments that the function does not take, or that are no JSON.
        """
        given = self._bind(tuple(args), kwargs)
        try:
            return self.decode(json.dumps(given, allow_nan=False))
        except ValueError as error:
            raise TypeError(f"{self.owner}: {error}") from None

    def digest(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> str:
        """The digest of a call: of its canonical JSON by declared type, defaults left out."""
        if not args and not kwargs and not self._plan.required:
            return _EMPTY_DIGEST
        given = self._bind(args, kwargs)
        if len(given) > 1:
            given = {name: given[name] for name in sorted(given)}
        try:
            wire = self._wire or self._compiled()
            return digest(self._plainly(given) or wire.canonical(given))
        except Misfit as misfit:
            _refuse(self.owner, misfit)

    def _plainly(self, given: Mapping[str, Any]) -> str | None:
        """Canonical JSON of scalars given to parameters without defaults; None for any others."""
        parts = []
        for name, value in given.items():
            if type(value) not in self._scalars.get(name, _NO_TYPE):
                return None
            text = _scalar_text(value)
            if text is None:
                return None
            parts.append(f'"{name}":{text}')
        return f"{{{','.join(parts)}}}"

    def schema(self) -> str:
        """JSON schema of the object that `decode` takes."""
        try:
            return (self._wire or self._compiled()).schema()
        except Misfit as misfit:
            _refuse(self.owner, misfit)

    def _bind(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """Parameter name to value, for what was given."""
        plan = self._plan
        if plan.takes_all and not kwargs and len(args) == len(plan.positional):
            return dict(zip(plan.positional, args, strict=True))
        if len(args) <= len(plan.positional):
            given = dict(zip(plan.positional, args, strict=False))
            if kwargs and plan.by_name.issuperset(kwargs) and given.keys().isdisjoint(kwargs):
                given.update(kwargs)
                kwargs = {}
            if not kwargs and plan.required <= given.keys():
                return given
        return self._bind_slowly(args, kwargs)

    def _filled(self, given: dict[str, Any]) -> dict[str, Any]:
        """All parameters in the order of the signature, but for defaults that have no JSON."""
        defaults = self._plan.defaults
        return {
            each.name: given[each.name] if each.name in given else defaults[each.name]
            for each in self._parameters
            if each.name in given or each.name not in self._absent
        }

    def _bind_slowly(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        try:
            bound = inspect.Signature(self._parameters).bind(*args, **kwargs)
        except TypeError as error:
            raise TypeError(f"{self.owner}: {error}") from None
        given = dict(bound.arguments)
        if self._plan.var_positional in given:
            given[self._plan.var_positional] = list(given[self._plan.var_positional])
        return given

    def _compiled(self) -> Wire:
        fields = {
            each.name: (each, resolve(self._function, each.name, self.owner))
            for each in self._parameters
        }
        wire = Wire(_input_type(fields))
        self._absent = frozenset(
            name
            for name, value in self._plan.defaults.items()
            if not _writable(wire, name, value) and not _fits(fields[name][1], value)
        )
        self._scalars = {
            name: _identical(Any if hint is Parameter.empty else hint)
            for name, (each, hint) in fields.items()
            if _default(each) is _NONE
        }
        self._constant = {name: _constant(hint) for name, (_, hint) in fields.items()}
        self._wire = wire
        return wire


def arguments(function: Callable[..., Any], owner: str) -> Arguments:
    """The arguments of a function.

    Raises `DefinitionError` when it has no signature; on first use, when an annotation cannot be
    resolved.
    """
    try:
        parameters = tuple(inspect.signature(function).parameters.values())
    except (TypeError, ValueError) as error:
        raise DefinitionError(f"{owner}: {error}") from None
    return Arguments(function, owner, parameters)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Plan:
    """A signature, taken apart for binding without `inspect`."""

    positional: tuple[str, ...]
    keyword_only: tuple[str, ...]
    by_name: frozenset[str]
    required: frozenset[str]
    defaults: Mapping[str, Any]
    #: Whether a call that gives all positional ones gives all that is required.
    takes_all: bool
    var_positional: str = ""
    var_keyword: str = ""

    @classmethod
    def of(cls, parameters: tuple[Parameter, ...]) -> _Plan:
        names: defaultdict[object, list[str]] = defaultdict(list)
        for each in parameters:
            names[each.kind].append(each.name)
        by_name = [*names[Parameter.POSITIONAL_OR_KEYWORD], *names[Parameter.KEYWORD_ONLY]]
        required = frozenset(each.name for each in parameters if _default(each) is _NONE)
        positional = names[Parameter.POSITIONAL_ONLY] + names[Parameter.POSITIONAL_OR_KEYWORD]
        return cls(
            positional=tuple(positional),
            keyword_only=tuple(names[Parameter.KEYWORD_ONLY]),
            by_name=frozenset(by_name),
            required=required,
            takes_all=required.issubset(positional),
            defaults={
                each.name: _default(each) for each in parameters if _default(each) is not _NONE
            },
            var_positional="".join(names[Parameter.VAR_POSITIONAL]),
            var_keyword="".join(names[Parameter.VAR_KEYWORD]),
        )


_NONE: Final = Parameter.empty


def _constant(annotation: Any) -> frozenset[type]:
    """Types of the values that nobody can change, and that are surely what they will be read as."""
    inside = typing.get_args(annotation)
    if len(inside) == 2 and inside[1] is type(None) and typing.get_origin(annotation) in _UNIONS:
        return _constant(inside[0]) | {type(None)}
    if annotation is float or annotation is bytes:
        return frozenset({annotation})
    return _identical(Any if annotation is Parameter.empty else annotation)


_UNIONS: Final = (typing.Union, UnionType)


def _default(parameter: Parameter) -> Any:
    if parameter.kind is Parameter.VAR_POSITIONAL:
        return []
    if parameter.kind is Parameter.VAR_KEYWORD:
        return {}
    return parameter.default


def _writable(wire: Wire, name: str, value: Any) -> bool:
    # A default such as a sentinel need not fit its annotation: it is left to the function.
    try:
        wire.write({name: value})
    except Misfit:
        return False
    return True


def _fits(annotation: Any, value: Any) -> bool:
    # The whole object cannot be coerced with parameters missing, one value alone can.
    try:
        Wire(annotation).round_trip(value)
    except Misfit:
        return False
    return True


def _input_type(fields: Mapping[str, tuple[Parameter, Any]]) -> Any:
    """A type whose JSON is the object of a function's arguments."""

    class Input:
        @classmethod
        def __get_pydantic_core_schema__(
            cls, source: Any, handler: GetCoreSchemaHandler
        ) -> CoreSchema:
            return core_schema.typed_dict_schema(
                {name: _field(each, hint, handler) for name, (each, hint) in fields.items()},
                extra_behavior="forbid",
            )

    return Input


def _field(
    parameter: Parameter, annotation: Any, handler: GetCoreSchemaHandler
) -> core_schema.TypedDictField:
    if annotation is Parameter.empty:
        annotation = Any
    if parameter.kind is Parameter.VAR_POSITIONAL:
        schema: CoreSchema = core_schema.list_schema(handler.generate_schema(annotation))
    elif parameter.kind is not Parameter.VAR_KEYWORD:
        schema = handler.generate_schema(annotation)
    elif typing.get_origin(annotation) is typing.Unpack:
        schema = handler.generate_schema(typing.get_args(annotation)[0])
    else:
        schema = core_schema.dict_schema(
            core_schema.str_schema(strict=True), handler.generate_schema(annotation)
        )
    default = _default(parameter)
    if default is _NONE:
        return core_schema.typed_dict_field(schema, required=True)
    if default is None and schema["type"] != "nullable":
        # `x: int = None` says that None is taken, whatever the annotation says.
        schema = core_schema.nullable_schema(schema)
    return core_schema.typed_dict_field(
        core_schema.with_default_schema(schema, default=default), required=False
    )


# Sizes and blobs


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """Bytes of JSON: above `inline_limit` a value is kept as a blob, above `hard_limit` refused."""

    inline_limit: int = 8_192
    hard_limit: int = 4_194_304


def check_size(text: str, owner: str, sizes: Sizes) -> int:
    """The size of a text in bytes. Raises `PayloadTooLarge` above the hard limit."""
    size = len(text) if text.isascii() else len(text.encode())
    if size > sizes.hard_limit:
        raise PayloadTooLarge(owner, size, sizes.hard_limit)
    return size


def pack(text: str) -> bytes:
    """A text as a blob keeps it."""
    return zlib.compress(text.encode())


def unpack(data: bytes) -> str:
    """The text of a blob. Raises `ValueError` if it is none."""
    try:
        return zlib.decompress(data).decode()
    except zlib.error as error:
        raise ValueError(f"the blob is damaged: {error}") from None


def blob_hash(text: str) -> str:
    """The name of a text's blob: sha256 of the text, not of its packed form."""
    return hashlib.sha256(text.encode()).hexdigest()
