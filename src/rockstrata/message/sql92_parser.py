"""RocketMQ's SQL92 filter language: text in, syntax tree out.

Answers to SelectorParser.jj of rocketmq-filter and to the checks its expression classes make when
they are built. Called by ``sql92`` only.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass

from rockstrata.errors import RockstrataError

LENGTH_MAX = 64 * 1024
DEPTH_MAX = 48


class IllegalExpressionError(RockstrataError, ValueError):
    """A filter expression that RocketMQ would refuse, or beyond our limits."""


class Long(int):
    """A Java Long: an integer literal beyond 32 bits. Its range decides which text it compares with."""


Value = None | bool | int | float | str


@dataclass(frozen=True, slots=True)
class Node:
    """An expression; ``depth`` bounds the recursion of whoever walks it."""

    depth: int

    @property
    def is_boolean(self) -> bool:
        """True if it can only yield true, false or unknown."""
        return True


@dataclass(frozen=True, slots=True)
class Constant(Node):
    """A literal."""

    value: Value

    @property
    def is_boolean(self) -> bool:
        """TRUE, FALSE and NULL are boolean literals."""
        return self.value is None or isinstance(self.value, bool)


@dataclass(frozen=True, slots=True)
class Property(Node):
    """The value of a message property, always text."""

    name: str

    @property
    def is_boolean(self) -> bool:
        """Only by a cast."""
        return False


@dataclass(frozen=True, slots=True)
class Negate(Node):
    """``- operand``."""

    operand: Node

    @property
    def is_boolean(self) -> bool:
        """A number or nothing."""
        return False


@dataclass(frozen=True, slots=True)
class Cast(Node):
    """A property where a condition is asked for."""

    operand: Node


@dataclass(frozen=True, slots=True)
class Not(Node):
    """``NOT operand``."""

    operand: Node


@dataclass(frozen=True, slots=True)
class Logic(Node):
    """Operands joined by AND (``is_and``) or OR, from left to right."""

    is_and: bool
    operands: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Comparison(Node):
    """``left operator right`` with ``=``, ``<``, ``<=``, ``>`` or ``>=``."""

    operator: str
    left: Node
    right: Node


@dataclass(frozen=True, slots=True)
class In(Node):
    """``property [NOT] IN (texts)``."""

    operand: Property
    texts: frozenset[str]
    negated: bool


@dataclass(frozen=True, slots=True)
class Search(Node):
    """``operand [NOT] CONTAINS|STARTSWITH|ENDSWITH 'text'``."""

    kind: str
    operand: Node
    text: str
    negated: bool


_SKIP = re.compile(r"(?:[ \t\n\r\f]|--[^\n\r]*(?:\r\n|\n|\r)|/\*(?s:.*?)\*/)*")
_TOKEN = re.compile(
    r"(?P<float>[0-9]+\.[0-9]*(?:[eE][+-]?[0-9]+)?|\.[0-9]+(?:[eE][+-]?[0-9]+)?|[0-9]+[eE][+-]?[0-9]+)"
    r"|(?P<integer>0|[1-9][0-9]*[lL]?)"
    r"|(?P<text>'(?:''|[^'])*')"
    r"|(?P<word>[A-Za-z_$][A-Za-z0-9_$]*)"
    r"|(?P<sign><>|>=|<=|[=<>(),+-])"
)
_RESERVED = frozenset(
    {"NOT", "AND", "OR", "BETWEEN", "IN", "TRUE", "FALSE", "NULL", "IS", "CONTAINS", "STARTSWITH", "ENDSWITH"}
)
_SEARCHES = frozenset({"CONTAINS", "STARTSWITH", "ENDSWITH"})
_LITERALS = {"TRUE": True, "FALSE": False, "NULL": None}


@dataclass(frozen=True, slots=True)
class Token:
    """``kind`` is the reserved word or sign itself, or name, text, integer, float, end."""

    kind: str
    image: str
    position: int


def _tokens(sql: str) -> Iterator[Token]:
    position = 0
    while True:
        position = _skip(sql, position)
        if position == len(sql):
            yield Token("end", "", position)
            return
        match = _TOKEN.match(sql, position)
        if match is None:
            raise IllegalExpressionError(
                "not a word of the filter language",
                position=position,
                found=repr(sql[position : position + 20]),
            )
        image, kind = match[0], match.lastgroup or ""
        if kind == "word":
            kind = image.upper() if image.upper() in _RESERVED else "name"
        yield Token(image if kind == "sign" else kind, image, position)
        position = match.end()


def _skip(sql: str, position: int) -> int:
    match = _SKIP.match(sql, position)
    return match.end() if match else position


class Parser:
    """Recursive descent. Looks no further ahead than RocketMQ's, whose parser ignores what follows
    a complete expression."""

    def __init__(self, sql: str) -> None:
        if len(sql) > LENGTH_MAX:
            raise IllegalExpressionError("filter expression too long", expected=LENGTH_MAX, found=len(sql))
        self._sql = sql
        self._tokens = _tokens(sql)
        self._ahead: list[Token] = []
        self._depth = 0

    def parse(self) -> tuple[Node, str]:
        """The condition, and the text after it that has no meaning."""
        condition = self._as_boolean(self._or())
        return condition, self._sql[self._peek().position :]

    def _peek(self, distance: int = 0) -> Token:
        while len(self._ahead) <= distance:
            self._ahead.append(next(self._tokens))
        return self._ahead[distance]

    def _take(self, *kinds: str) -> Token | None:
        """The next token if it is one of these."""
        return self._ahead.pop(0) if self._peek().kind in kinds else None

    def _expect(self, kind: str) -> Token:
        token = self._take(kind)
        if token is None:
            raise self._refuse("filter expression", kind)
        return token

    def _refuse(self, what: str, expected: str) -> IllegalExpressionError:
        token = self._peek()
        found = token.image[:40] or "the end"
        return IllegalExpressionError(what, position=token.position, expected=expected, found=found)

    def _deeper(self, *operands: Node) -> int:
        depth = 1 + max((operand.depth for operand in operands), default=0)
        if depth > DEPTH_MAX:
            raise self._refuse("filter expression too deep", f"at most {DEPTH_MAX} levels")
        return depth

    def _as_boolean(self, node: Node) -> Node:
        if isinstance(node, Property):
            return Cast(self._deeper(node), node)
        if not node.is_boolean:
            raise self._refuse("filter expression", "a condition before this")
        return node

    def _or(self) -> Node:
        operands = [self._and()]
        while self._take("OR"):
            operands.append(self._and())
        return self._logic(operands, is_and=False)

    def _and(self) -> Node:
        operands = [self._equality()]
        while self._take("AND"):
            operands.append(self._equality())
        return self._logic(operands, is_and=True)

    def _logic(self, operands: list[Node], *, is_and: bool) -> Node:
        if len(operands) == 1:
            return operands[0]
        conditions = tuple(self._as_boolean(operand) for operand in operands)
        return Logic(self._deeper(*conditions), is_and, conditions)

    def _equality(self) -> Node:
        left = self._comparison()
        while token := self._take("=", "<>", "IS"):
            if token.kind == "IS":
                negated = self._take("NOT") is not None
                self._expect("NULL")
                right: Node = Constant(1, None)
            else:
                negated = token.kind == "<>"
                right = self._comparison()
                self._check_equal(left, right)
            left = Comparison(self._deeper(left, right), "=", left, right)
            if negated:
                left = Not(self._deeper(left), left)
        return left

    def _check_equal(self, left: Node, right: Node) -> None:
        both_literal = isinstance(left, Constant) and isinstance(right, Constant)
        if any(isinstance(node, Constant) and node.value is None for node in (left, right)):
            raise self._refuse("filter expression", "IS NULL or IS NOT NULL for a comparison with NULL")
        if both_literal and left.is_boolean and not right.is_boolean:
            raise self._refuse("filter expression", "a boolean literal to compare a boolean literal with")

    def _comparison(self) -> Node:
        left = self._unary()
        while True:
            if token := self._take("<", "<=", ">", ">="):
                left = self._ordered(token.kind, left, self._unary())
                continue
            if self._peek().kind == "NOT":
                if self._peek(1).kind not in {"BETWEEN", "IN", *_SEARCHES}:
                    self._take("NOT")
                    raise self._refuse(
                        "filter expression", "BETWEEN, IN, CONTAINS, STARTSWITH or ENDSWITH after NOT"
                    )
                negated = self._take("NOT") is not None
            else:
                negated = False
            if token := self._take(*_SEARCHES):
                left = Search(self._deeper(left), token.kind, left, self._text(), negated)
            elif self._take("BETWEEN"):
                left = self._between(left, negated)
            elif self._take("IN"):
                left = self._in(left, negated)
            else:
                return left

    def _ordered(self, operator: str, left: Node, right: Node) -> Node:
        for node in (left, right):
            if isinstance(node, Constant) and type(node.value) in (int, Long, float):
                continue
            if isinstance(node, Constant) or node.is_boolean:
                raise self._refuse("filter expression", f"properties and numbers around {operator}")
        return Comparison(self._deeper(left, right), operator, left, right)

    def _between(self, value: Node, negated: bool) -> Node:
        low = self._unary()
        self._expect("AND")
        high = self._unary()
        first = self._ordered("<" if negated else ">=", value, low)
        second = self._ordered(">" if negated else "<=", value, high)
        if not negated and isinstance(low, Constant) and isinstance(high, Constant):
            # Literals of an ordered comparison are numbers.
            assert isinstance(low.value, int | float)
            assert isinstance(high.value, int | float)
            if low.value > high.value:
                raise self._refuse("filter expression", "the lower bound of BETWEEN first")
        return Logic(self._deeper(first, second), not negated, (first, second))

    def _in(self, operand: Node, negated: bool) -> Node:
        self._expect("(")
        texts = {self._text()}
        while self._take(","):
            texts.add(self._text())
        self._expect(")")
        if not isinstance(operand, Property):
            raise self._refuse("filter expression", "a property before IN")
        return In(self._deeper(operand), operand, frozenset(texts), negated)

    def _unary(self) -> Node:
        prefixes = []
        while token := self._take("+", "-", "NOT"):
            prefixes.append(token.kind)
        node = self._primary()
        for prefix in reversed(prefixes):
            if prefix == "-":
                node = Negate(self._deeper(node), node)
            elif prefix == "NOT":
                operand = self._as_boolean(node)
                node = Not(self._deeper(operand), operand)
        return node

    def _primary(self) -> Node:
        token = self._take("text", "integer", "float", "name", "(", *_LITERALS)
        if token is None:
            raise self._refuse("filter expression", "a property, a literal or (")
        if token.kind == "(":
            self._depth += 1
            if self._depth > DEPTH_MAX:
                raise self._refuse("filter expression too deep", f"at most {DEPTH_MAX} levels")
            node = self._or()
            self._expect(")")
            self._depth -= 1
            return node
        if token.kind == "name":
            return Property(1, token.image)
        return Constant(1, _literal(token))

    def _text(self) -> str:
        return _decode_text(self._expect("text").image)


def _literal(token: Token) -> Value:
    if token.kind == "text":
        return _decode_text(token.image)
    if token.kind == "float":
        number = float(token.image)
        # RocketMQ's lower bound is the smallest positive double, so 0.0 is out too.
        if not 0 < number < float("inf"):
            raise _out_of_range(token, "a number greater than 0.0 and within a double's range")
        return number
    if token.kind == "integer":
        digits = token.image.rstrip("lL")
        if len(digits) > 19 or int(digits) >= 1 << 63:
            raise _out_of_range(token, "an integer of 64 bits")
        return int(digits) if int(digits) < 1 << 31 else Long(digits)
    return _LITERALS[token.kind]


def _decode_text(image: str) -> str:
    return image[1:-1].replace("''", "'")


def _out_of_range(token: Token, expected: str) -> IllegalExpressionError:
    return IllegalExpressionError(
        "filter expression", position=token.position, expected=expected, found=token.image[:40]
    )
