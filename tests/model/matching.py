"""Which selectors a message hits, and what they would make of it (rules 2, 5, 11, 12)."""

from tests.model.entries import bounced
from xump import operators
from xump.actions import Field
from xump.conditions import Match, Role, Where

try:
    from xump_ext.infinite import INFINITE
except ImportError:
    INFINITE = float("inf")     # tests may set it


def holds(selector, entry):
    """Whether the selector's condition holds for the entry. Evaluated once."""
    if selector.role == "overflow":
        return False
    if selector.role == "default":
        return entry.marked
    if selector not in entry.holds:
        entry.holds[selector] = evaluate(selector, entry)
    return entry.holds[selector]


def evaluate(selector, entry):
    if isinstance(selector.when, Role):
        return True
    terms = selector.when.terms()
    for term in [t for t in terms if isinstance(t, Match)] + [t for t in terms if isinstance(t, Where)]:
        try:
            if passes(term, entry) is not True:
                return False
        except Exception:
            selector.errors += 1
            return False
    return True


def names_target(selector, entry):
    """Whether the fields in the selector's action, if any, name what they must name."""
    action, message = selector.do, entry.message
    if isinstance(action.queue, Field) and target_of(selector, message) is None:
        return False
    return not isinstance(action.destination, Field) or bool(name_in(message, action.destination.name))


def target_of(selector, message):
    """The queue into which the selector would put the message, or None."""
    name = selector.do.queue
    queue = selector.engine.queues.get(name_in(message, name.name) if isinstance(name, Field) else name)
    return None if queue is None or queue.staged else queue


def destination_of(selector, message):
    name = selector.do.destination
    return name_in(message, name.name) if isinstance(name, Field) else name


def makes(selector, entry):
    """The message that a COPY, MOVE or BOUNCE would put into its target."""
    message = entry.message.replace(hops=entry.message.hops + 1)
    if selector.do.verb == "deliver":
        return message.replace(destination=destination_of(selector, entry.message))
    if selector.do.verb == "bounce":
        return bounced(message, "bounced", entry.queue.name)
    return message


def passes(term, entry):
    """One term of a condition: True, False or (a filter) None. What a callable raises is the caller's."""
    message = entry.message
    if isinstance(term, Where):
        if term.tree[0] == "call":
            return bool(term.tree[1](message))
        from tests.match.filter_reference import evaluate
        return evaluate(term.tree, message, entry.delivery_count)
    value = text_in(message, term.field)
    if value is None:
        return False
    if term.operator == "eq":
        return value == term.pattern
    if term.operator == "prefix":
        return value.startswith(term.pattern)
    if term.operator == "topic":
        return topic_matches(words_in(term.pattern), words_in(value))
    return bool(operators.registered(term.operator)(term.pattern, value))


def passes_quietly(term, entry):
    try:
        return passes(term, entry) is True
    except Exception:
        return False


def words_in(text):
    return text.split(".") if text else []


def topic_matches(pattern, words):
    """`*` is one word, `#` any number of words.

    >>> topic_matches(["a", "#"], ["a"]), topic_matches(["*"], [])
    (True, False)
    """
    if not pattern:
        return not words
    first, rest = pattern[0], pattern[1:]
    if first == "#":
        return any(topic_matches(rest, words[i:]) for i in range(len(words) + 1))
    return bool(words) and first in ("*", words[0]) and topic_matches(rest, words[1:])


def text_in(message, field):
    """The text in a field of the message, or None."""
    if field.startswith("headers."):
        value = message.headers.get(field.removeprefix("headers."))
    else:
        value = getattr(message, field)
    return value if isinstance(value, str) else None


def name_in(message, field):
    """The same, if it can be a name."""
    text = text_in(message, field)
    return text if text and len(text.encode()) < 65535 else None
