"""Parses the text of filters into a tree. The language is the selector syntax of JMS, a subset of SQL-92's conditions.

    or         = and {OR and}                           sum      = product {(+ | -) product}
    and        = not {AND not}                          product  = sign {(* | /) sign}
    not        = {NOT} predicate                        sign     = {+ | -} value
    predicate  = sum [(= | <> | < | <= | > | >=) sum]   value    = ( or ) | literal | name | "name"
               | sum [NOT] BETWEEN sum AND sum                     | headers.NAME | sys.NAME
               | sum [NOT] IN (literal {, literal})
               | sum [NOT] LIKE 'pattern' [ESCAPE 'c']
               | sum IS [NOT] NULL

`==` and `!=` are read as `=` and `<>`. A name with dots is a header's name after `headers.`, or in double quotes.

The parser climbs precedences: `expression(level)` reads an operand, then goes on as long as the operators bind at least as
tightly as `level`. `filter_depth_max` limits two depths, each on its own: the operators around a term (which are the tree, and
the C stack when it is evaluated), and the parentheses around it (which leave no trace in the tree). Terms joined by AND, or by
OR, become a balanced tree, so a long list of them is not a deep one.

Text that JMS calls invalid is refused, with the position: a literal, or an expression of known type, where only another type
has a meaning. A comparison of unlike types is valid: it is unknown, by definition.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, NamedTuple

from xump.errors import InvalidFilter
from xump.limits import filter_chars_max, filter_depth_max

Tree = tuple[Any, ...]

BOOLEAN, NUMBER, TEXT, ANY = "a boolean", "a number", "a string", "a header"

SYSTEM = {"address": TEXT, "reply_to": TEXT, "timestamp": NUMBER, "size": NUMBER, "delivery_count": NUMBER}
"""The names after `sys.`, and their types."""

KEYWORDS = frozenset(["AND", "OR", "NOT", "IN", "LIKE", "ESCAPE", "BETWEEN", "IS", "NULL", "TRUE", "FALSE"])
OR, AND, NOT, PREDICATE, SUM, PRODUCT, SIGN = range(1, 8)
BINDING = {"OR": OR, "AND": AND, "+": SUM, "-": SUM, "*": PRODUCT, "/": PRODUCT} | dict.fromkeys(
    ("=", "<>", "<", "<=", ">", ">=", "NOT", "IN", "LIKE", "BETWEEN", "IS"), PREDICATE
)


SPELLINGS = {"==": "=", "!=": "<>"}
"""Spellings of other languages, and their meaning here."""


class Token(NamedTuple):
    """A piece of the text."""

    kind: str
    """`"keyword"`, `"symbol"`, `"literal"`, `"name"` or `"end"`."""
    value: Any
    """The keyword in capitals, the symbol, the literal's value, or the name's tree."""
    text: str
    """The piece as it was written."""
    position: int
    """Where it begins, in characters from 0."""


TOKEN = re.compile(
    r"""[ \t\r\n\f]*+(?:
      (?P<string>'(?:[^']|'')*+')
    | (?P<quoted>"(?:[^"]|"")*+")
    | (?P<integer>(?:0[xX][0-9a-fA-F]+|[0-9]+)[lL]?(?![\w$.]))
    | (?P<real>(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)(?![\w$])
    | (?P<sys>sys\.[\w$]*)
    | headers\.(?P<header>(?:[^\W\d]|\$)[\w$]*(?:\.[\w$]+)*)
    | (?P<name>(?:[^\W\d]|\$)[\w$]*)
    | (?P<symbol><>|<=|>=|!=|==|[=<>()+*/,-])
    | (?P<end>\Z)
    )""",
    re.VERBOSE,
)


def tokenize(text: str) -> list[Token]:
    """Split the text of a filter into tokens; the last one has the kind "end". Raises `InvalidFilter`."""
    if len(text) > filter_chars_max:
        raise InvalidFilter(f"a filter has {len(text)} characters, allowed are {filter_chars_max}", filter_chars_max)
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise InvalidFilter(f"lone surrogate at {error.start}", error.start) from None
    tokens: list[Token] = []
    position = 0
    while not tokens or tokens[-1].kind != "end":
        found = TOKEN.match(text, position)
        if found is None:
            raise _unreadable(text, position)
        kind = str(found.lastgroup)
        tokens.append(_token(kind, found[kind], found.start(kind)))
        position = found.end()
    return tokens


def _token(kind: str, text: str, position: int) -> Token:
    if kind == "string":
        return Token("literal", text[1:-1].replace("''", "'"), text, position)
    if kind == "integer":
        return Token("literal", _integer(text, position), text, position)
    if kind == "real":
        value = float(text)
        if value == float("inf"):
            raise InvalidFilter(f"{text[:40]} at {position} is beyond a 64-bit float, allowed is 1.8e308", position)
        return Token("literal", value, text, position)
    if kind == "quoted":
        if text == '""':
            raise InvalidFilter(f"empty header name at {position}", position)
        return Token("name", ("header", text[1:-1].replace('""', '"')), text, position)
    if kind == "sys":
        if text[4:] not in SYSTEM:
            raise InvalidFilter(f"unknown name {text} at {position}; there are sys.{', sys.'.join(SYSTEM)}", position)
        return Token("name", ("sys", text[4:]), text, position)
    if kind == "name":
        keyword = text.upper() if text.isascii() else text
        if keyword in KEYWORDS:
            return Token("keyword", keyword, text, position)
        return Token("name", ("header", text), text, position)
    if kind == "header":
        return Token("name", ("header", text), text, position)
    return Token(kind, SPELLINGS.get(text, text), text, position)


def _integer(text: str, position: int) -> int:
    """The value of an integer as Java writes it. Octal literals are refused: few readers expect them.

    Whether the number fits into 64 bits depends on its sign: see `Parser.literal`.
    """
    digits = text.rstrip("lL")
    if digits[:2] in ("0x", "0X"):
        return int(digits, 16)
    if digits[0] == "0" and len(digits) > 1:
        raise InvalidFilter(f"{text[:40]} at {position} is octal in Java, decimal in SQL; omit the leading zero", position)
    return int(digits)


def _unreadable(text: str, position: int) -> InvalidFilter:
    position += len(text[position:]) - len(text[position:].lstrip(" \t\r\n\f"))
    character = text[position]
    if character in "'\"":
        return InvalidFilter(f"the {character} at {position} is not closed", position)
    if number := re.match(r"\.?[0-9][\w$.]*", text[position:]):
        return InvalidFilter(f"{number[0][:40]!r} at {position} is not a number; a name like it goes in double quotes", position)
    hint = '; write headers.user.name, or "user.name" in double quotes, for a name with a dot' if character == "." else ""
    return InvalidFilter(f"unexpected {character!r} at {position}{hint}", position)


class Term(NamedTuple):
    """An expression that was read."""

    tree: Tree
    """The expression as nested tuples."""
    type: str
    """BOOLEAN, NUMBER or TEXT; ANY for a header, whose type only the message knows."""
    depth: int
    """The number of operators on the longest way down."""
    position: int
    """Where it begins in the text."""


class Parser:
    """Reads one text: its tokens, and how far the parser has come."""

    def __init__(self, text: str) -> None:
        self.tokens = tokenize(text)
        """All tokens of the text."""
        self.at = 0
        """The index of the token that is read next."""
        self.parentheses = 0
        """How many parentheses are open."""

    @property
    def token(self) -> Token:
        """The token that is read next."""
        return self.tokens[self.at]

    def filter(self) -> Tree:
        """Read the whole text. Every method that reads raises `InvalidFilter`, with the position."""
        term = self.expression(OR, 0)
        if self.token.kind != "end":
            raise self.unexpected("an operator or the end")
        self.require(term, BOOLEAN, "a filter")
        return term.tree

    def expression(self, level: int, depth: int) -> Term:
        """Read an expression whose operators bind at least as tightly as `level`. There are `depth` operators around it."""
        self.check_depth(depth, self.token)
        term = self.operand(level, depth)
        while True:
            token = self.token
            binding = BINDING.get(token.value, 0) if token.kind in ("keyword", "symbol") else 0
            if binding < level or binding == 0:
                return term
            if binding == PREDICATE:
                term = self.predicate(term, depth + 1)
                if self.token.kind in ("keyword", "symbol") and BINDING.get(self.token.value) == PREDICATE:
                    raise self.unexpected("AND, OR or the end (comparisons do not chain: use parentheses)")
            elif binding <= AND:
                term = self.chain(term, token, binding, depth + 1)
            else:
                self.at += 1
                right = self.expression(binding + 1, depth + 1)
                self.require(term, NUMBER, token.text)
                self.require(right, NUMBER, token.text)
                term = self.node(token, NUMBER, (token.value, term.tree, right.tree), term, right)

    def chain(self, first: Term, operator: Token, binding: int, depth: int) -> Term:
        """Read the rest of several terms that are joined by AND, or by OR."""
        terms = [first]
        while self.accept(operator.value):
            terms.append(self.expression(binding + 1, depth))
        for term in terms:
            self.require(term, BOOLEAN, operator.value)
        levels = (len(terms) - 1).bit_length() + max(term.depth for term in terms)
        self.check_depth(levels, operator)
        return Term(joined(operator.value.lower(), [term.tree for term in terms]), BOOLEAN, levels, first.position)

    def operand(self, level: int, depth: int) -> Term:
        """Read a value, with the NOT or the sign before it."""
        token = self.token
        if token.kind == "name":
            self.at += 1
            return Term(token.value, SYSTEM[token.value[1]] if token.value[0] == "sys" else ANY, 0, token.position)
        if level <= NOT and self.accept("NOT"):
            term = self.expression(NOT, depth + 1)
            self.require(term, BOOLEAN, "NOT")
            return self.node(token, BOOLEAN, ("not", term.tree), term)._replace(position=token.position)
        if self.accept("("):
            return self.parenthesized(token, depth)
        value = self.literal()
        if value is not None:
            return Term(("literal", value), type_name(value), 0, token.position)
        if self.accept("-") or self.accept("+"):
            term = self.expression(SIGN, depth + 1)
            self.require(term, NUMBER, token.text)
            # `+ a` is a number or unknown, never a string: so is 0 + a.
            tree = ("neg", term.tree) if token.value == "-" else ("+", ("literal", 0), term.tree)
            return self.node(token, NUMBER, tree, term)._replace(position=token.position)
        raise self.unexpected("a value")

    def parenthesized(self, opening: Token, depth: int) -> Term:
        """Read an expression and the parenthesis that closes it."""
        self.parentheses += 1
        self.check_depth(self.parentheses, opening)
        term = self.expression(OR, depth)
        if not self.accept(")"):
            raise self.unexpected("an operator or )")
        self.parentheses -= 1
        return term._replace(position=opening.position)

    def literal(self) -> Any:
        """Read a literal and its sign, and return its value; None if there is no literal here."""
        sign = self.token
        signed = sign.kind == "symbol" and sign.value in "+-"
        token = self.tokens[self.at + 1] if signed else sign
        if token.kind == "keyword" and token.value in ("TRUE", "FALSE") and not signed:
            self.at += 1
            return token.value == "TRUE"
        if token.kind != "literal" or (signed and isinstance(token.value, str)):
            return None
        value = -token.value if signed and sign.value == "-" else token.value
        if isinstance(value, int) and not -(2**63) <= value < 2**63:
            raise InvalidFilter(
                f"{str(value)[:40]} at {sign.position} does not fit in 64 bits, allowed are -2**63 to 2**63 - 1", sign.position
            )
        self.at += 2 if signed else 1
        return value

    def predicate(self, left: Term, depth: int) -> Term:
        """Read a comparison, BETWEEN, IN, LIKE or IS NULL, after its left side."""
        token = self.token
        self.at += 1
        if token.kind == "symbol":
            right = self.expression(SUM, depth)
            return self.node(token, BOOLEAN, (token.value, left.tree, right.tree), left, right)
        negated = token.value == "NOT"
        if negated:
            token = self.token
            if token.kind != "keyword" or token.value not in ("BETWEEN", "IN", "LIKE"):
                raise self.unexpected("IN, LIKE or BETWEEN")
            self.at += 1
        if token.value == "BETWEEN":
            term = self.between(token, left, depth)
        elif token.value == "IN":
            term = self.node(token, BOOLEAN, ("in", left.tree, self.literals()), left)
        elif token.value == "LIKE":
            term = self.like(token, left)
        else:
            negated = self.accept("NOT")
            self.expect("NULL")
            term = self.node(token, BOOLEAN, ("is null", left.tree), left)
        return self.node(token, BOOLEAN, ("not", term.tree), term) if negated else term

    def between(self, token: Token, left: Term, depth: int) -> Term:
        """Read what follows BETWEEN."""
        low = self.expression(SUM, depth)
        self.expect("AND")
        high = self.expression(SUM, depth)
        return self.node(token, BOOLEAN, ("between", left.tree, low.tree, high.tree), left, low, high)

    def literals(self) -> tuple[Any, ...]:
        """Read the list of literals after IN."""
        self.expect("(")
        values: list[Any] = []
        while not values or self.accept(","):
            value = self.literal()
            if value is None:
                raise self.unexpected("a literal")
            values.append(value)
        self.expect(")")
        return tuple(values)

    def like(self, token: Token, left: Term) -> Term:
        """Read what follows LIKE."""
        self.require(left, TEXT, "LIKE")
        at = self.token.position
        pattern = self.string()
        escape = None
        if self.accept("ESCAPE"):
            escape_at = self.token.position
            escape = self.string()
            if len(escape) != 1:
                raise InvalidFilter(f"ESCAPE at {escape_at} takes one character, got {escape!r}", escape_at)
            if re.sub(f"{re.escape(escape)}[%_{re.escape(escape)}]", "", pattern).count(escape):
                raise InvalidFilter(f"pattern {pattern!r} at {at}: {escape!r} must stand before %, _ or itself", at)
        return self.node(token, BOOLEAN, ("like", left.tree, pattern, escape), left)

    def string(self) -> str:
        """Read a string literal."""
        token = self.token
        if token.kind != "literal" or not isinstance(token.value, str):
            raise self.unexpected("a string")
        self.at += 1
        return token.value

    def node(self, operator: Token, type: str, tree: Tree, *operands: Term) -> Term:
        """A term over other terms. If it is too deep, the error names the position of `operator`."""
        depth = 1 + max(term.depth for term in operands)
        self.check_depth(depth, operator)
        return Term(tree, type, depth, operands[0].position)

    def accept(self, value: str) -> bool:
        """Skip this keyword or symbol if it comes next. Returns whether it did."""
        if self.token.kind not in ("keyword", "symbol") or self.token.value != value:
            return False
        self.at += 1
        return True

    def expect(self, value: str) -> None:
        """Skip this keyword or symbol, which must come next."""
        if not self.accept(value):
            raise self.unexpected(value)

    def require(self, term: Term, type: str, operator: str) -> None:
        """Raise unless the term is of this type, or may be."""
        if term.type not in (type, ANY):
            raise InvalidFilter(f"{operator} needs {type} at {term.position}, got {term.type}", term.position)

    def check_depth(self, levels: int, token: Token) -> None:
        """Raise if there are too many levels of nesting."""
        if levels > filter_depth_max:
            at = token.position
            raise InvalidFilter(f"a filter has {levels} levels at {at}, allowed are {filter_depth_max}", at)

    def unexpected(self, wanted: str) -> InvalidFilter:
        """The error for a token that cannot stand here."""
        token = self.token
        hint = "; compare with NULL by IS NULL" if token.value == "NULL" else ""
        found = "the end" if token.kind == "end" else repr(token.text[:40])
        return InvalidFilter(f"expected {wanted} at {token.position}, got {found}{hint}", token.position)


def type_name(value: Any) -> str:
    """The name of the type of a literal. Types that can be compared with each other have the same name."""
    if isinstance(value, bool):
        return BOOLEAN
    if isinstance(value, (int, float)):
        return NUMBER
    return TEXT if isinstance(value, str) else "bytes"


def joined(operator: str, trees: Sequence[Tree]) -> Tree:
    """Join trees into a balanced tree: n trees are log2 n levels deep."""
    if len(trees) == 1:
        return trees[0]
    middle = (len(trees) + 1) // 2
    return operator, joined(operator, trees[:middle]), joined(operator, trees[middle:])
