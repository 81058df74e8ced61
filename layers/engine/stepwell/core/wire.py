"""One declared type's way to JSON text and back: pydantic, bent so that every value comes back.

Pydantic's own JSON loses some values: bytes that are no UTF-8, infinite floats, computed fields
that do not validate, anything behind `Any`. Its core schema is therefore copied and edited before
it is compiled, nested models included. What an edit promises is written next to it.

Knows nothing of owners, signatures or sizes; `core.payload` does. Errors are `Misfit`.
"""

from __future__ import annotations

import json
import math
from base64 import urlsafe_b64encode
from collections.abc import Callable, Sequence
from typing import Any, Final, cast

from pydantic import SecretBytes, SecretStr, TypeAdapter, ValidationError
from pydantic.json_schema import GenerateJsonSchema
from pydantic_core import (
    PydanticCustomError,
    PydanticSerializationError,
    SchemaSerializer,
    SchemaValidator,
    core_schema,
)

from stepwell.core.misfit import (
    Misfit,
    Steps,
    refuse_uncarriable,
    text_misfit,
    told,
    value_misfit,
)

#: A node of a core schema. Pydantic types these as a union of fifty TypedDicts; an edit sees dicts.
Node = dict[str, Any]


class Wire:
    """A compiled type. The parts that only errors or digests need are compiled on first use.

    Safe to share between threads: what is built twice in a race is equal.
    """

    __slots__ = (
        "_ambiguous",
        "_by_alias",
        "_canonical",
        "_checker",
        "_flat",
        "_open",
        "_schema",
        "_serializer",
        "_validator",
    )

    def __init__(self, annotation: Any) -> None:
        facts = _Facts()
        self._schema = _edited(_core_schema(annotation), [facts.note, _carry])
        self._by_alias = not facts.renamed
        self._ambiguous = "union" in facts.types
        self._open = "any" in facts.types
        self._flat = facts.flat
        self._serializer = _serializer(self._schema)
        self._validator = _validator(self._schema)
        self._canonical: SchemaSerializer | None = None
        self._checker: SchemaValidator | None = None

    def write(self, value: Any) -> str:
        """The value as JSON text, coerced if it fits only then. Not yet known to be readable."""
        return self._write(self._serializer, value).decode()

    def load(self, text: str) -> Any:
        """The value that a text stands for."""
        value = self._read(text)
        if self._open and ("NaN" in text or "Infinity" in text):
            # Pydantic's parser takes these bare words for numbers, though they are no JSON.
            self._coerced(value)
        return value

    def round_trip(self, value: Any) -> tuple[str, Any]:
        """The text of a value, and the value as a later reader will see it.

        Pydantic writes some values that it does not read (None for an int, a member of a union
        that reads as another), so only what was read counts as written.
        """
        data = self._write(self._serializer, value)
        if self._ambiguous:
            return data.decode(), self._read_alike(value, data)
        return data.decode(), self._read(data)

    def canonical(self, value: Any) -> str:
        """JSON text that is equal for equal values in every process: sorted keys and sets.

        Fields of models that are at their default are left out. The keys of the outermost object
        have to be sorted already.
        """
        if self._canonical is None:
            self._canonical = _serializer(_edited(self._schema, [_canonise]))
        data = self._write(self._canonical, value, canonical=True)
        if self._flat:
            return data.decode()
        # The text of the standard library, because floats look the same in all its versions.
        try:
            plain = json.loads(data)
        except ValueError as error:
            raise Misfit("$", told(error)) from None
        return json.dumps(plain, sort_keys=True, ensure_ascii=False, separators=(",", ":"))

    def schema(self) -> str:
        """JSON schema text of what `load` takes."""
        generator = _JsonSchema(by_alias=self._by_alias)
        try:
            schema = generator.generate(cast("core_schema.CoreSchema", self._schema))
        except Exception as error:
            raise Misfit("$", f"has no JSON schema: {told(error)}") from None
        return json.dumps(schema, ensure_ascii=False, separators=(",", ":"))

    def _read(self, text: str | bytes) -> Any:
        try:
            return self._validator.validate_json(text, by_alias=True, by_name=True)
        except ValidationError as error:
            raise text_misfit(error, text) from None
        except Exception as error:
            raise Misfit("$", told(error)) from error

    def _write(self, serializer: SchemaSerializer, value: Any, *, canonical: bool = False) -> bytes:
        # By name in digests: whether aliases can be used depends on all parameters together.
        by_alias = self._by_alias and not canonical
        try:
            return serializer.to_json(
                value,
                by_alias=by_alias,
                exclude_computed_fields=True,
                exclude_defaults=canonical,
                warnings="error",
            )
        except Exception:
            fitting = self._coerced(value)
        try:
            return serializer.to_json(
                fitting,
                by_alias=by_alias,
                exclude_computed_fields=True,
                exclude_defaults=canonical,
                warnings="error",
            )
        except PydanticSerializationError as error:
            raise Misfit("$", told(error)) from None
        except Exception as error:
            raise Misfit("$", told(error)) from error

    def _coerced(self, value: Any) -> Any:
        """The value made to fit. Looks into instances too: their fields may have been changed."""
        if self._checker is None:
            self._checker = _validator(_edited(self._schema, [_check]))
        try:
            refuse_uncarriable(value)
            return self._checker.validate_python(value, by_alias=True, by_name=True)
        except Misfit:
            raise
        except ValidationError as error:
            raise value_misfit(error, value) from None
        except Exception as error:
            raise Misfit("$", told(error)) from error

    def _read_alike(self, value: Any, data: bytes) -> Any:
        """What the text reads back as. A union may read "1" as another member than wrote it."""
        read = self._read(data)
        if _same(read, value) or _same(read, self._coerced(value)):
            return read
        reason = (
            f"the union cannot tell its members apart in JSON: {type(value).__name__} comes back "
            f"as {type(read).__name__}; declare one type, or models with a discriminator"
        )
        raise Misfit("$", reason)


# Building


def _core_schema(annotation: Any) -> Node:
    try:
        adapter: TypeAdapter[Any] = TypeAdapter(annotation)
        if not adapter.pydantic_complete:
            adapter.rebuild(raise_errors=True)
    except Exception as error:
        shown = getattr(annotation, "__qualname__", None) or repr(annotation)
        raise Misfit("$", f"type {shown} cannot be carried: {told(error)}") from None
    return cast("Node", adapter.core_schema)


def _serializer(schema: Node) -> SchemaSerializer:
    # Without the last flag nested models would bring the serializer of their class, unedited.
    return SchemaSerializer(cast("core_schema.CoreSchema", schema), _config({}), False)


def _validator(schema: Node) -> SchemaValidator:
    return SchemaValidator(cast("core_schema.CoreSchema", schema), _config({}), False)


#: Keys of a node that hold values of users, not nodes.
_OPAQUE: Final = frozenset(
    {"cls", "config", "custom_error_context", "default", "expected", "members", "metadata"}
)

Edit = Callable[[Node], None]


def _edited(node: Node, edits: Sequence[Edit]) -> Node:
    """A copy of the schema in which every node has gone through the edits, inner ones first."""
    copy = {k: v if k in _OPAQUE else _edited_part(k, v, edits) for k, v in node.items()}
    for edit in edits:
        edit(copy)
    return copy


def _edited_part(key: object, value: Any, edits: Sequence[Edit]) -> Any:
    if isinstance(value, dict):
        # A serialization is no node itself, though it may hold one; neither is a map of fields.
        if key != "serialization" and isinstance(value.get("type"), str):
            return _edited(value, edits)
        return {k: _edited_part(None, v, edits) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(_edited_part(None, v, edits) for v in value)
    return value


class _Facts:
    """What one walk over a schema finds out about it."""

    def __init__(self) -> None:
        self.types: set[str] = set()
        self.renamed = False
        self._objects = 0
        self._custom = False

    @property
    def flat(self) -> bool:
        """Whether canonical text needs no sorting of inner keys, no second look at numbers."""
        return self.types <= _FLAT and self._objects <= 1 and not self._custom

    def note(self, node: Node) -> None:
        kind = node["type"]
        self.types.add(kind)
        self._objects += kind == "typed-dict"
        self._custom = self._custom or "serialization" in node
        # Written under a name that is not read: such types are carried by field name.
        if kind.endswith("-field") and kind != "computed-field":
            alias = node.get("serialization_alias")
            self.renamed = self.renamed or alias != node.get("validation_alias")


#: Types whose JSON holds no object, and no number whose text depends on who prints it.
_FLAT: Final = frozenset(
    {
        "bool", "bytes", "date", "datetime", "decimal", "default", "frozenset", "int", "list",
        "none", "nullable", "set", "str", "timedelta", "tuple", "typed-dict", "typed-dict-field",
        "uuid",
    }
)  # fmt: skip


# Edits


def _config(own: Node) -> core_schema.CoreConfig:
    """A type's own config, made lossless. Its encoding of bytes is kept: people chose it."""
    encoding = own.get("ser_json_bytes", own.get("val_json_bytes", "base64"))
    lossless = {
        "ser_json_bytes": encoding,
        "val_json_bytes": own.get("val_json_bytes", encoding),
        "ser_json_inf_nan": "strings",
        "ser_json_timedelta": "iso8601",
        "ser_json_temporal": "iso8601",
    }
    return cast("core_schema.CoreConfig", {**own, **lossless})


def _carry(node: Node) -> None:
    """Every value comes back, or is refused: what holds for all texts."""
    kind = node["type"]
    if kind in ("model", "dataclass", "typed-dict"):
        node["config"] = _config(node.get("config", {}))
    if kind == "model":
        _carry_extras(node)
    elif kind == "any":
        node.setdefault("serialization", _PLAIN)
    elif kind == "dict":
        _carry_keys(node, node.get("keys_schema", _ANY))
    elif kind == "generator":
        # A validated generator is read once and equal to nothing.
        node["type"] = "list"
    elif kind == "call" and _is_tuple(node["function"]):
        # Before pydantic 2.14 a NamedTuple was written without regard to its fields' types.
        fields = [each["schema"] for each in node["arguments_schema"]["arguments_schema"]]
        node["serialization"] = core_schema.plain_serializer_function_ser_schema(
            tuple, return_schema=core_schema.tuple_schema(fields)
        )
    _refuse_masked(node)


def _carry_keys(node: Node, keys: Node) -> None:
    if keys["type"] == "any":
        # JSON would turn other keys into text without a word.
        node["keys_schema"] = {"type": "str", "strict": True}
    elif keys["type"] == "enum":
        by_text = {str(member.value): member for member in keys["members"]}
        # Keys are text in JSON, and an enum takes no text for a member that is a number.
        node["keys_schema"] = core_schema.no_info_before_validator_function(
            lambda key: by_text.get(key, key), cast("core_schema.CoreSchema", keys)
        )


def _carry_extras(node: Node) -> None:
    if node["config"].get("extra_fields_behavior") != "allow":
        return
    inner = node["schema"]
    while inner["type"] != "model-fields" and "schema" in inner:
        inner = inner["schema"]
    if inner["type"] == "model-fields":
        inner.setdefault("extras_schema", {"type": "any", "serialization": _PLAIN})


def _canonise(node: Node) -> None:
    """Equal values, equal text, whatever the order of sets in this process."""
    kind = node["type"]
    if kind in ("set", "frozenset") and "serialization" not in node:
        node["serialization"] = core_schema.wrap_serializer_function_ser_schema(_sorted_set)
    elif kind == "default":
        inner = node["schema"]
        if inner["type"] == "literal" and len(inner["expected"]) == 1:
            # The tag of a discriminated union is always at its default, yet tells members apart.
            node.clear()
            node.update(inner)
        elif node.get("default_factory") in _EMPTY:
            node["default"] = node.pop("default_factory")()


def _check(node: Node) -> None:
    """Errors with their place, also inside instances and behind `Any`."""
    kind = node["type"]
    if kind == "any":
        function = {"type": "no-info", "function": _checked_plain}
        node.update(type="function-plain", function=function)
    elif kind in ("model", "dataclass", "typed-dict"):
        node["config"] = {**node["config"], "loc_by_alias": False}
        if kind != "typed-dict":
            node["revalidate_instances"] = "always"
    elif kind == "typed-dict-field" and node["schema"]["type"] == "default":
        # A parameter that was left out stays out: its default need not be JSON.
        node["schema"] = node["schema"]["schema"]


#: Factories that make the same value each time; others cannot be compared with.
_EMPTY: Final = (list, dict, set, frozenset, tuple, str, int, float, bool, bytes)


def _is_tuple(function: object) -> bool:
    return isinstance(function, type) and issubclass(function, tuple)


def _sorted_set(value: Any, write: Callable[[Any], list[Any]]) -> list[Any]:
    return sorted(write(value), key=lambda item: json.dumps(item, sort_keys=True))


def _refuse_masked(node: Node) -> None:
    serialization = node.get("serialization")
    if serialization and serialization.get("function") in _masking():
        raise Misfit(
            "$",
            "a secret is masked when it is written and would be lost; read it inside the step, "
            "or give the field a serializer of its own",
        )


def _masking() -> list[object]:
    if not _MASKING:
        for secret in (SecretStr, SecretBytes):
            _edited(cast("Node", TypeAdapter(secret).core_schema), [_note_masking])
    return _MASKING


def _note_masking(node: Node) -> None:
    if "serialization" in node:
        _MASKING.append(node["serialization"].get("function"))


#: Filled on first use: the functions with which pydantic hides its secrets.
_MASKING: list[object] = []


# Values without a declared type


class _NotPlain(Exception):
    """Something JSON has no notation for. `steps` is filled from the inside out."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason
        self.steps: Steps = []


_SCALARS: Final = frozenset({type(None), bool, int, str})


def _plain(value: Any) -> Any:
    """The value itself, if it is plain JSON. Exact types: a subclass would not come back as one."""
    kind = type(value)
    if kind in _SCALARS:
        return value
    if kind is float:
        if not math.isfinite(value):
            raise _NotPlain(f"{value} has no JSON form; annotate the type (float)")
    elif kind is list or kind is tuple:
        _plain_items(enumerate(value))
    elif kind is dict:
        _plain_items(value.items())
        for key in value:
            if type(key) is not str:
                raise _NotPlain(
                    f"key {key!r} is {type(key).__name__}, JSON keys are text; annotate the type, "
                    "such as dict[int, str]"
                )
    else:
        raise _NotPlain(
            f"{kind.__qualname__} is not plain JSON and would not come back; annotate the type"
        )
    return value


def _plain_items(items: Any) -> None:
    for step, item in items:
        if type(item) in _SCALARS:
            continue
        try:
            _plain(item)
        except _NotPlain as error:
            error.steps.append(step)
            raise


def _checked_plain(value: Any) -> Any:
    try:
        return _plain(value)
    except _NotPlain as error:
        context = {"reason": error.reason, "steps": error.steps[::-1]}
        raise PydanticCustomError("not_plain", "{reason}", context) from None
    except RecursionError:
        context = {"reason": "nested too deep, or holds itself", "steps": []}
        raise PydanticCustomError("not_plain", "{reason}", context) from None


_ANY: Final[Node] = {"type": "any"}
_PLAIN: Final = core_schema.plain_serializer_function_ser_schema(_plain)


def _same(left: Any, right: Any) -> bool:
    # nan is not equal to itself, nor a dataclass without eq; their texts are.
    return bool(left == right) or repr(left) == repr(right)


# JSON schema


class _JsonSchema(GenerateJsonSchema):
    """Pydantic's generator, told how bytes are carried. Defaults without JSON are left out."""

    ignored_warning_kinds = {"skipped-choice", "non-serializable-default"}  # noqa: RUF012

    def bytes_schema(self, schema: core_schema.BytesSchema) -> dict[str, Any]:
        """Base64, as `_config` says."""
        return {**super().bytes_schema(schema), "format": "base64url"}

    def encode_default(self, dft: Any) -> Any:
        """A default as the field itself would be written."""
        if isinstance(dft, bytes):
            return urlsafe_b64encode(dft).decode()
        return super().encode_default(dft)
