"""RocketMQ's SQL92 filter on message properties: compile an expression, ask it about a message.

Answers to SqlFilter, the expression classes of rocketmq-filter and MessageEvaluationContext. Called
where a consumer subscribed by expression, and by the command line.
"""

import math
import re
from collections.abc import Callable, Mapping
from functools import lru_cache

from rockstrata.message import sql92_parser as syntax
from rockstrata.message.sql92_parser import IllegalExpressionError, Long, Node, Value
from rockstrata.message.text import java_integer

__all__ = ["IllegalExpressionError", "Sql92Filter", "compile_filter"]

Properties = Mapping[str, str]
Evaluate = Callable[[Properties], Value]

_DOUBLE = re.compile(
    r"[+-]?(?:NaN|Infinity|(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?[fFdD]?)",
)
_HEX_DOUBLE = re.compile(r"([+-]?0[xX](?:[0-9a-fA-F]+\.?|[0-9a-fA-F]*\.[0-9a-fA-F]+)[pP][+-]?[0-9]+)[fFdD]?")
_JAVA_BLANKS = "".join(map(chr, range(33)))


class _CannotCompareError(Exception):
    """Values that RocketMQ cannot compare: the whole expression has no result."""


class Sql92Filter:
    """A compiled expression. Immutable, for any number of threads."""

    def __init__(self, expression: str) -> None:
        tree, self.ignored = syntax.Parser(expression).parse()
        """Text after the expression that RocketMQ passes over, as we do; worth a warning."""
        self.expression = expression
        self._evaluate = _build(tree)

    def evaluate(self, properties: Properties) -> bool | None:
        """True, false or unknown; unknown too if a property cannot be compared as asked."""
        try:
            result = self._evaluate(properties)
        except _CannotCompareError:
            return None
        assert result is None or isinstance(result, bool)
        return result

    def matches(self, properties: Properties) -> bool:
        """Whether the consumer gets the message: only if the result is true."""
        return self.evaluate(properties) is True

    def __repr__(self) -> str:
        return f"Sql92Filter({self.expression!r})"


@lru_cache(maxsize=100)
def compile_filter(expression: str) -> Sql92Filter:
    """The filter of an expression, or IllegalExpressionError."""
    return Sql92Filter(expression)


# --- From tree to function -----------------------------------------------------------------------


def _build(node: Node) -> Evaluate:
    match node:
        case syntax.Constant(value=value):
            return lambda properties: value
        case syntax.Property(name=name):
            return lambda properties: properties.get(name)
        case syntax.Negate(operand=operand):
            return _negate(_build(operand))
        case syntax.Cast(operand=operand):
            return _cast(_build(operand))
        case syntax.Not(operand=operand):
            return _not(_build(operand))
        case syntax.Logic(is_and=is_and, operands=operands):
            return _logic(tuple(map(_build, operands)), decisive=not is_and)
        case syntax.Comparison(operator="=", left=left, right=right):
            return _equal(_build(left), _build(right))
        case syntax.Comparison(operator=operator, left=left, right=right):
            return _ordered(_ORDERS[operator], _build(left), _build(right))
        case syntax.In(operand=operand, texts=texts, negated=negated):
            return _in(_build(operand), texts, negated)
        case syntax.Search(kind=kind, operand=operand, text=text, negated=negated):
            return _search(_SEARCHES[kind], _build(operand), text, negated)
    raise AssertionError(node)


_ORDERS: dict[str, Callable[[int], bool]] = {
    "<": lambda order: order < 0,
    "<=": lambda order: order <= 0,
    ">": lambda order: order > 0,
    ">=": lambda order: order >= 0,
}
_SEARCHES: dict[str, Callable[[str, str], bool]] = {
    "CONTAINS": str.__contains__,
    "STARTSWITH": str.startswith,
    "ENDSWITH": str.endswith,
}


def _negate(operand: Evaluate) -> Evaluate:
    def evaluate(properties: Properties) -> Value:
        value = operand(properties)
        if isinstance(value, Long):
            return Long(-value)
        return -value if type(value) in (int, float) else None  # type: ignore[operator]

    return evaluate


def _cast(operand: Evaluate) -> Evaluate:
    # A property is text, never a boolean: false, or unknown if absent.
    return lambda properties: None if operand(properties) is None else False


def _not(operand: Evaluate) -> Evaluate:
    def evaluate(properties: Properties) -> Value:
        value = operand(properties)
        return None if value is None else not value

    return evaluate


def _logic(operands: tuple[Evaluate, ...], *, decisive: bool) -> Evaluate:
    """OR if true decides, AND if false does; operands after a decisive one are not looked at."""

    def evaluate(properties: Properties) -> Value:
        result: bool | None = not decisive
        for operand in operands:
            value = operand(properties)
            if value is decisive:
                return decisive
            if value is None:
                result = None
        return result

    return evaluate


def _equal(left: Evaluate, right: Evaluate) -> Evaluate:
    def evaluate(properties: Properties) -> Value:
        first, second = left(properties), right(properties)
        if first is None:
            return True if second is None else None
        return second is not None and _compare(first, second) == 0

    return evaluate


def _ordered(accepts: Callable[[int], bool], left: Evaluate, right: Evaluate) -> Evaluate:
    def evaluate(properties: Properties) -> Value:
        first = left(properties)
        if first is None:
            return None
        second = right(properties)
        if second is None:
            return None
        if isinstance(first, str) and isinstance(second, str):
            return accepts(_order(_to_double(first), _to_double(second)))
        return accepts(_compare(first, second))

    return evaluate


def _in(operand: Evaluate, texts: frozenset[str], negated: bool) -> Evaluate:
    def evaluate(properties: Properties) -> Value:
        value = operand(properties)
        return None if value is None else (value in texts) is not negated

    return evaluate


def _search(finds: Callable[[str, str], bool], operand: Evaluate, text: str, negated: bool) -> Evaluate:
    if not text:
        return lambda properties: False

    def evaluate(properties: Properties) -> Value:
        value = operand(properties)
        # Absent, or no text, is false for CONTAINS and for NOT CONTAINS.
        return isinstance(value, str) and finds(value, text) is not negated

    return evaluate


# --- Comparing as Java does ----------------------------------------------------------------------


def _compare(left: Value, right: Value) -> int:
    """Below, at or above zero. Text takes the other side's type; what has no order is below."""
    if isinstance(left, str):
        if isinstance(right, str):
            return _order(left, right)
        left = _like(right, left)
    elif isinstance(right, str):
        if isinstance(left, bool):
            raise _CannotCompareError
        right = _like(left, right)
    if isinstance(left, bool) is not isinstance(right, bool):
        return -1
    if isinstance(left, float) or isinstance(right, float):
        return _order(float(left), float(right))  # type: ignore[arg-type]
    return _order(left, right)


def _like(model: Value, text: str) -> Value:
    """``text`` as the type of ``model``."""
    if isinstance(model, bool):
        return text.lower() == "true"
    if isinstance(model, float):
        return _to_double(text)
    number = java_integer(text, 64 if isinstance(model, Long) else 32)
    if number is None:
        raise _CannotCompareError
    return number


def _to_double(text: str) -> float:
    text = text.strip(_JAVA_BLANKS)
    if _DOUBLE.fullmatch(text):
        return float(text if text.endswith(("NaN", "y")) else text.rstrip("fFdD"))
    if found := _HEX_DOUBLE.fullmatch(text):
        try:
            return float.fromhex(found[1])
        except OverflowError:
            return -math.inf if text.startswith("-") else math.inf
    raise _CannotCompareError


def _order(left: Value, right: Value) -> int:
    if isinstance(left, float) and isinstance(right, float):
        left, right = _double_key(left), _double_key(right)  # type: ignore[assignment]
    return (left > right) - (left < right)  # type: ignore[operator]


def _double_key(number: float) -> tuple[bool, float, float]:
    """Sorts as Double.compareTo: NaN last and equal to itself, -0.0 before 0.0."""
    if math.isnan(number):
        return (True, 0.0, 0.0)
    return (False, number, math.copysign(1.0, number))
