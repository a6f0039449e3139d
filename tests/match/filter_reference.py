"""What filters mean, in plain Python: slow, obvious, and without a line in common with the compiled evaluator.

`evaluate` takes a tree as `xump.filters.compile` returns it, and anything that has the attributes of a message. NULL and
unknown are both None, as in SQL.
"""

import math
import re


def evaluate(tree, message, delivery_count=0):
    """True, False, or None for unknown."""
    if tree[0] == "call":
        return bool(tree[1](message))
    result = value_of(tree, message, delivery_count)
    return result if isinstance(result, bool) else None


def value_of(tree, message, delivery_count):
    """What a tree is worth: a bool, int, float, str, bytes or None."""
    operation, *operands = tree
    if operation == "literal":
        return operands[0]
    if operation == "header":
        return message.headers.get(operands[0])
    if operation == "sys":
        return envelope(operands[0], message, delivery_count)
    if operation == "in":
        value = value_of(operands[0], message, delivery_count)
        return any_of(compare("=", value, literal) for literal in operands[1])
    if operation == "like":
        return like(value_of(operands[0], message, delivery_count), *operands[1:])
    values = [value_of(operand, message, delivery_count) for operand in operands]
    if operation == "is null":
        return values[0] is None
    if operation in ("and", "or", "not"):
        return logic(operation, [value if isinstance(value, bool) else None for value in values])
    if operation in ("+", "-", "*", "/", "neg"):
        return arithmetic(operation, values)
    if operation == "between":
        return logic("and", [compare(">=", values[0], values[1]), compare("<=", values[0], values[2])])
    return compare(operation, *values)


def envelope(name, message, delivery_count):
    if name == "size":
        return len(message.body)
    return delivery_count if name == "delivery_count" else getattr(message, name)


def any_of(truths):
    truths = list(truths)
    return True if True in truths else None if None in truths else False


def logic(operation, truths):
    if operation == "or":
        return any_of(truths)
    if operation == "not":
        return None if truths[0] is None else not truths[0]
    return logic("not", [any_of(logic("not", [truth]) for truth in truths)])


def kind(value):
    """The types that compare with each other have the same kind."""
    if isinstance(value, bool) or value is None:
        return type(value).__name__
    return "number" if isinstance(value, (int, float)) else type(value).__name__


def is_number(value):
    return kind(value) == "number" and not math.isnan(value)


def compare(operation, left, right):
    if operation == "=":
        if left is None or kind(left) != kind(right) or (kind(left) == "number" and not (is_number(left) and is_number(right))):
            return None
        return left == right
    if operation == "<>":
        return logic("not", [compare("=", left, right)])
    if not (is_number(left) and is_number(right)):
        return None
    return {"<": left < right, "<=": left <= right, ">": left > right, ">=": left >= right}[operation]


def arithmetic(operation, values):
    if any(kind(value) != "number" for value in values):
        return None
    if operation == "neg":
        result = -values[0]
    elif operation == "/":
        result = quotient(*values)
    elif all(isinstance(value, int) for value in values):
        result = calculated(operation, *values)
    else:
        result = calculated(operation, *map(float, values))
    if isinstance(result, int) and not -(2**63) <= result < 2**63:
        return None
    return result


def calculated(operation, left, right):
    return {"+": left + right, "-": left - right, "*": left * right}[operation]


def quotient(left, right):
    if right == 0:
        return None
    if isinstance(left, int) and isinstance(right, int):
        result = abs(left) // abs(right)
        return result if (left < 0) == (right < 0) else -result
    return float(left) / float(right)


def like(value, pattern, escape):
    """By a regular expression, which may take exponential time: for short patterns only."""
    if not isinstance(value, str):
        return None
    expression = ""
    characters = iter(pattern)
    for character in characters:
        if character == escape:
            expression += re.escape(next(characters))
        else:
            expression += {"%": ".*", "_": "."}.get(character) or re.escape(character)
    return re.fullmatch(expression, value, re.DOTALL) is not None
