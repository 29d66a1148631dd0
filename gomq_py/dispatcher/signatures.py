"""Derives the types of a task's arguments from its function's signature. Senders write these types, and
workers check them.

    def resize(path: str, width: int, quality: Float32 = 0.9): ...     string, int, float32

``int`` becomes Go's int (64 bits), ``float`` float64, ``str`` string, ``bool`` bool. An argument with another
annotation is sent as JSON, and only its outer type is checked (of ``list[int]``: a list). Without an
annotation the value decides the type.
"""

import inspect
import types
import typing
from collections.abc import Callable
from typing import Annotated, Any, TypeAlias

from gomq_py.dispatcher.arguments import INTEGERS, convert, shown, type_of
from gomq_py.dispatcher.errors import BadArgument, BadTask
from gomq_py.dispatcher.tasks import Argument

# One a line: a type checker takes a name of several in a line for a variable.
Int8: TypeAlias = Annotated[int, "int8"]
Int16: TypeAlias = Annotated[int, "int16"]
Int32: TypeAlias = Annotated[int, "int32"]
Int64: TypeAlias = Annotated[int, "int64"]
UInt8: TypeAlias = Annotated[int, "uint8"]
UInt16: TypeAlias = Annotated[int, "uint16"]
UInt32: TypeAlias = Annotated[int, "uint32"]
UInt64: TypeAlias = Annotated[int, "uint64"]
Float32: TypeAlias = Annotated[float, "float32"]

_WIRE = {bool: "bool", int: "int", float: "float64", str: "string"}
_JSON_KINDS = {list: list, dict: dict, tuple: list, set: list}
_P = inspect.Parameter


class Signature:
    """The argument types of one task. ``skip``: the number of leading parameters that the worker supplies."""

    def __init__(self, name: str, function: Callable[..., Any], skip: int = 0) -> None:
        self.name = name
        hints = typing.get_type_hints(function, include_extras=True)
        parameters = list(inspect.signature(function).parameters.values())
        if any(each.kind is _P.VAR_KEYWORD for each in parameters):
            raise BadTask(
                f"task {name!r} takes **{parameters[-1].name}: a task's arguments have an order on the wire")
        self._skip = parameters[:skip]
        self._parameters = parameters[skip:]
        self._kinds = [_kind_of(hints.get(each.name, Any)) for each in self._parameters]
        self._signature = inspect.Signature([each.replace(annotation=_P.empty) for each in self._parameters])

    def arguments(self, args: tuple[Any, ...] | list[Any], kwargs: dict[str, Any]) -> list[Argument]:
        """Return the Arguments to send for a call, in parameter order, with defaults. Raises BadArgument."""
        try:
            bound = self._signature.bind(*args, **kwargs)
        except TypeError as error:
            raise BadArgument(f"task {self.name!r}: {error}") from None
        bound.apply_defaults()
        found = []
        for parameter, kind in zip(self._parameters, self._kinds):
            value = bound.arguments[parameter.name]
            for each in value if parameter.kind is _P.VAR_POSITIONAL else (value,):
                try:
                    found.append(kind.argument(each))
                except BadArgument as error:
                    raise BadArgument(
                        f"task {self.name!r}: argument {len(found) + 1} ({parameter.name!r}): {error}"
                    ) from None
        return found

    def position_of(self, parameter: str) -> int:
        """Return the index (from 0) of this parameter's argument among the arguments sent. Raises BadTask."""
        for position, each in enumerate(self._parameters):
            if each.kind is _P.VAR_POSITIONAL:
                break
            if each.name == parameter:
                return position
        raise BadTask(f"task {self.name!r} has no parameter {parameter!r}")

    def check(self, values: list[Any], type_names: list[str]) -> None:
        """Raise BadArgument if the function does not accept these values, sent with these types."""
        least, most = _counts(self._parameters)
        _check_count(len(values), least, most)
        for number, value in enumerate(values):
            at = min(number, len(self._parameters) - 1)
            try:
                self._kinds[at].check(value, type_names[number])
            except BadArgument as error:
                raise BadArgument(f"argument {number + 1} ({self._parameters[at].name!r}): {error}") from None

    def call(self, function: Callable[..., Any], values: tuple[Any, ...] | list[Any]) -> Any:
        """Call the function with received values, keyword-only ones by name, and return its result."""
        names = [each.name for each in (*self._skip, *self._parameters)]
        keyword_only = sum(1 for each in self._parameters if each.kind is _P.KEYWORD_ONLY)
        if not keyword_only:
            return function(*values)
        first = len(values) - keyword_only
        return function(*values[:first], **dict(zip(names[-keyword_only:], values[first:])))


def check_of(function: Callable[..., Any], skip: int) -> Callable[[list[Any], Any], None]:
    """Return ``check(values, type_names)``, which raises BadArgument for a wrong number of arguments. For
    tasks without a Signature. ``skip``: the number of leading parameters that the worker supplies.
    """
    try:
        least, most = _counts(inspect.signature(function).parameters.values())
        least, most = max(0, least - skip), None if most is None else most - skip
    except (TypeError, ValueError):
        least, most = 0, None  # a builtin without a signature

    def check(values, _):
        _check_count(len(values), least, most)

    return check


def _check_count(count, least, most):
    if count < least or most is not None and count > most:
        expected = (
            f"{least} or more" if most is None else str(least) if least == most else f"{least} to {most}"
        )
        raise BadArgument(f"{count} arguments were sent, and the function takes {expected}")


def _counts(parameters):
    least = sum(1 for each in parameters if each.default is _P.empty and each.kind is not _P.VAR_POSITIONAL)
    most = None if any(each.kind is _P.VAR_POSITIONAL for each in parameters) else len(parameters)
    return least, most


class _Scalar:
    """The type of a parameter annotated as bool, int, float, str or a sized number such as Float32."""

    def __init__(self, type_name):
        self._type = type_name

    def argument(self, value):
        type_name = self._type
        if type_name == "int" and isinstance(value, int) and value > INTEGERS["int"][1]:
            type_name = "uint64"  # too large for the others
        return Argument(convert(type_name, value), type_name)

    def check(self, value, type_name):
        if type_name == self._type:
            return
        if type_name in INTEGERS and (self._type in INTEGERS or self._type.startswith("float")):
            # Senders in other languages choose their own width: the value counts.
            if self._type in INTEGERS and not (self._type == "int" and type_name.startswith("uint")):
                convert(self._type, value)
            return
        if type_name.startswith("float") and self._type.startswith("float"):
            return
        if type_name == "json":
            convert(self._type, value)
            return
        raise BadArgument(f"{shown(value)} came as {type_name}, and the function takes {self._type}")


class _Json:
    """Type of a parameter that accepts any JSON value or, with ``kinds``, values of these Python types."""

    def __init__(self, kinds=()):
        self._kinds = kinds

    def argument(self, value):
        value = list(value) if isinstance(value, (tuple, set, frozenset)) else value
        self.check(value, "")
        return Argument(value, "json" if self._kinds else type_of(value))

    def check(self, value, _):
        if self._kinds and not isinstance(value, self._kinds):
            names = " or ".join("null" if each is type(None) else each.__name__ for each in self._kinds)
            raise BadArgument(f"{shown(value)} is not of kind {names}")


def _kind_of(annotation):
    if typing.get_origin(annotation) is Annotated:
        base, *notes = typing.get_args(annotation)
        for note in notes:
            if isinstance(note, str) and (note in INTEGERS or note == "float32"):
                return _Scalar(note)
        annotation = base
    if annotation in _WIRE:
        return _Scalar(_WIRE[annotation])
    if typing.get_origin(annotation) in (typing.Union, types.UnionType):
        members = [typing.get_origin(each) or each for each in typing.get_args(annotation)]
        kinds = tuple(_JSON_KINDS.get(each, each) for each in members)
        known = all(each in (*_WIRE, list, dict, type(None)) for each in kinds)
        # A float may come as 1.
        return _Json(kinds + ((int,) if float in kinds else ()) if known else ())
    kind = _JSON_KINDS.get(typing.get_origin(annotation) or annotation)
    return _Json((kind,) if kind else ())
