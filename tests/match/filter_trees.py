"""Filters as trees, drawn at random and written as text."""

from hypothesis import strategies as st

from xump.filters import syntax as filter_syntax
from xump import filters
from xump_ext.match.filter import Filter
from xump_ext.message.message import _rebuild


NAMES = ["a", "b", "n", "size", "region", "$x_1", "größe", "two words", 'quo"te', "like", "sys", "sys.address"]
INTEGERS = [0, 1, -1, 2, 3, 7, 10, 2**31, 2**53, 2**53 + 1, -(2**53) - 1, 2**62, 2**63 - 1, -(2**63)]
REALS = [0.0, -0.0, 0.5, 1.0, -1.5, 3.0, 2.0**53, 2.0**53 + 2, 2.0**63, -(2.0**63), 1e19, -1e300, 1e308, 5e-324]
STRINGS = ["", "a", "b", "ab", "aab", "EU", "eu", "a%b", "a_b", "ä", "äb", "\U0001f600", "it's", "x\ny", "\\", "1"]
ODD = [float("nan"), float("inf"), float("-inf"), b"", b"a", b"\xff\xfe"]
PATTERNS = ["", "%", "_", "a%", "%b", "%a%", "_b", "a_b", "__", "%_", "_%_", "%%", "a%%b%", "ä%", "%\U0001f600"]
ESCAPING = ["a!%b", "a!_b", "!!%", "%!_"]

texts = st.one_of(st.sampled_from(STRINGS), st.text(st.sampled_from("abä%_!'"), max_size=6))
integers = st.one_of(st.sampled_from(INTEGERS), st.integers(-(2**63), 2**63 - 1))
reals = st.one_of(st.sampled_from(REALS), st.floats(allow_nan=False, allow_infinity=False))
written = st.one_of(st.booleans(), integers, reals, texts)
values = st.one_of(written, st.sampled_from(ODD))
names = st.sampled_from(NAMES)
header = names.map(lambda name: ("header", name))
envelope = st.sampled_from(list(filter_syntax.SYSTEM)).map(lambda name: ("sys", name))

messages = st.builds(
    lambda address, body, headers, reply_to, timestamp: _rebuild(
        address, body, headers, reply_to, None, None, 1, timestamp, 0, None, None, 0),
    texts, st.binary(max_size=10), st.dictionaries(names, values, max_size=8), st.none() | texts, st.integers(0, 2**63 - 1),
)


def literals_of(value):
    return value.map(lambda v: ("literal", v))


def lists_of(value, size=12):
    return st.lists(value, min_size=1, max_size=size).map(tuple)


@st.composite
def patterns(draw):
    """A pattern, and its escape character if it needs one."""
    pattern = draw(st.sampled_from(PATTERNS + ESCAPING) | st.text(st.sampled_from("ab%_ä"), max_size=8))
    return (pattern, "!") if "!" in pattern else (pattern, draw(st.sampled_from([None, "!", "\\", "'"])))


def any_trees():
    """Trees of any shape, also those that the parser refuses because of their types."""

    def grow(tree):
        binary = st.sampled_from(["and", "or", "=", "<>", "<", "<=", ">", ">=", "+", "-", "*", "/"])
        return st.one_of(
            st.tuples(binary, tree, tree),
            st.tuples(st.sampled_from(["not", "neg", "is null"]), tree),
            st.tuples(st.just("in"), tree, lists_of(values)),
            st.tuples(tree, patterns()).map(lambda both: ("like", both[0], *both[1])),
            st.tuples(st.just("between"), tree, tree, tree),
        )

    return st.recursive(st.one_of(literals_of(values), header, envelope), grow, max_leaves=12)


def typed_trees(number, string, flag, literal_numbers, literal_strings, literal_any):
    """Trees that the parser accepts, over these leaves."""

    def arithmetic(tree):
        return st.tuples(st.sampled_from("+-*/"), tree, tree) | st.tuples(st.just("neg"), tree)

    numbers = st.recursive(number, arithmetic, max_leaves=6)
    anything = numbers | string

    def logic(tree):
        return st.tuples(st.sampled_from(["and", "or"]), tree, tree) | st.tuples(st.sampled_from(["not", "is null"]), tree)

    predicates = st.one_of(
        flag,
        st.tuples(st.sampled_from(["=", "<>", "<", "<=", ">", ">="]), numbers, numbers),
        st.tuples(st.sampled_from(["=", "<>"]), string, string),
        st.tuples(st.just("in"), numbers, lists_of(literal_numbers)),
        st.tuples(st.just("in"), string, lists_of(literal_strings)),
        st.tuples(st.just("in"), anything, lists_of(literal_any)),
        st.tuples(string, patterns()).map(lambda both: ("like", both[0], *both[1])),
        st.tuples(st.just("between"), numbers, numbers, numbers),
        st.tuples(st.just("is null"), anything),
    )
    return st.recursive(predicates, logic, max_leaves=6)


written_trees = typed_trees(
    header | literals_of(integers | reals) | envelope.filter(lambda tree: filter_syntax.SYSTEM[tree[1]] == filter_syntax.NUMBER),
    header | literals_of(texts) | envelope.filter(lambda tree: filter_syntax.SYSTEM[tree[1]] == filter_syntax.TEXT),
    header | literals_of(st.booleans()), integers | reals, texts, written,
)

LEVEL = {"or": 1, "and": 2, "not": 3, "+": 5, "-": 5, "*": 6, "/": 6, "neg": 7, "literal": 8, "header": 8, "sys": 8}


def tokens_of(tree, level=1):
    """What a tree is written as, in as few parentheses as it takes to be read back as the same tree."""
    own = LEVEL.get(tree[0], 4)
    tokens = tokens_within(tree, own)
    return tokens if own >= level else ["(", *tokens, ")"]


def tokens_within(tree, own):
    operation, *operands = tree
    if operation == "literal":
        return [literal_text(operands[0])]
    if operation == "header":
        return [name_text(operands[0])]
    if operation == "sys":
        return ["sys." + operands[0]]
    if operation == "not":
        return ["not", *tokens_of(operands[0], 3)]
    if operation == "neg":
        # A sign before a number belongs to the number.
        return ["-", *tokens_of(operands[0], 9 if operands[0][0] == "literal" else 7)]
    if operation == "is null":
        return [*tokens_of(operands[0], 5), "is", "null"]
    if operation == "in":
        return [*tokens_of(operands[0], 5), "in", "(" + ", ".join(map(literal_text, operands[1])) + ")"]
    if operation == "like":
        escape = [] if operands[2] is None else ["escape", literal_text(operands[2])]
        return [*tokens_of(operands[0], 5), "like", literal_text(operands[1]), *escape]
    if operation == "between":
        return [*tokens_of(operands[0], 5), "between", *tokens_of(operands[1], 5), "and", *tokens_of(operands[2], 5)]
    # AND and OR are read as balanced lists: nested ones need parentheses to stay as they are.
    left = own if own >= 5 else own + 1
    return [*tokens_of(operands[0], left), operation, *tokens_of(operands[1], own + 1)]


def literal_text(value):
    if isinstance(value, bool):
        return str(value)
    return "'" + value.replace("'", "''") + "'" if isinstance(value, str) else repr(value)


def name_text(name):
    plain = name.replace("$", "_").isidentifier() and name.upper() not in filter_syntax.KEYWORDS
    return name if plain else '"' + name.replace('"', '""') + '"'


def text_of(tree, chance=None):
    """The text of a tree; a `random.Random` varies capitals and spaces."""
    tokens = tokens_of(tree)
    if chance is None:
        return " ".join(tokens)
    for at, token in enumerate(tokens):
        if token.upper() in filter_syntax.KEYWORDS:
            tokens[at] = chance.choice([token, token.upper(), token.title()])
    return "".join(token + chance.choice([" ", "\n", " \t "]) for token in tokens)


def compiled(source):
    return Filter(filters.compile(source)[1])


plain = st.text(st.sampled_from("abABä%_!"), max_size=5)

HEADERS = {
    "n": 7, "zero": 0, "big": 2**53 + 1, "max": 2**63 - 1, "min": -(2**63), "f": 2.5, "whole": 7.0, "nan": float("nan"),
    "inf": float("inf"), "region": "EU", "empty": "", "raw": b"EU", "yes": True, "no": False, "umlaut": "größe", "lines": "a\nb",
}
MESSAGE = _rebuild("jobs.öl", b"12345", HEADERS, None, None, None, 9, 1_700_000_000_000_000_000, 0, None, None, 0)
