"""What a message says of its deaths, in tables of Python: what the compiled rewriter is compared with."""

from xump.broker.envelope import join, split
from xump.broker.tables import Typed, decode_table, encode_table, text

REASONS = {"overflow": "maxlen", "delivery-limit": "delivery_limit"}


def dead_letter(exchange, properties, key, death, new_key):
    """The properties of a dead letter, its routing key, and the queues that it must not enter."""
    reason = REASONS.get(death.reason, death.reason)
    given = split(properties)
    headers = decode_table(given["headers"][4:]) if "headers" in given else {}
    record_death(headers, death.queue, reason, death.time, exchange, [key, *copies(headers)], given.pop("expiration", None))
    if new_key is not None:
        headers.pop("CC", None)
        key = new_key
    given["headers"] = encode_table(headers)
    return join(given), key, barred(headers, reason)


def copies(headers):
    """The further routing keys in CC and BCC."""
    found = []
    for name, typed in headers.items():
        if name in ("CC", "BCC") and typed.kind == "A":
            found += [item.value.decode() for item in typed.value if item.kind == "S"]
    return found


def record_death(headers, queue, reason, time, exchange, keys, expiration):
    before = headers.get("x-death")
    deaths = [death for death in before.value if death.kind == "F"] if before is not None and before.kind == "A" else []
    same = next((death for death in deaths if said(death, "queue") == queue and said(death, "reason") == reason), None)
    if same is not None:
        deaths.remove(same)
        count = same.value.get("count", Typed("l", 0))
        entry = {**same.value, "count": Typed("l", (count.value if count.kind in "IlLbBsui" else 0) + 1)}
    else:
        entry = {
            "count": Typed("l", 1), "reason": text(reason), "queue": text(queue), "time": Typed("T", time // 10**9),
            "exchange": Typed("S", exchange), "routing-keys": Typed("A", [text(key) for key in keys])}
        if expiration is not None:
            entry["original-expiration"] = Typed("S", expiration[1:])
    headers["x-death"] = Typed("A", [Typed("F", entry), *deaths])
    if "x-first-death-reason" not in headers:
        headers |= {"x-first-death-reason": text(reason), "x-first-death-queue": text(queue),
                    "x-first-death-exchange": Typed("S", exchange)}


def said(death, name):
    typed = death.value.get(name)
    return typed.value.decode(errors="replace") if typed is not None and typed.kind == "S" else ""


def barred(headers, reason):
    names = []
    for death in headers["x-death"].value if reason != "rejected" else ():
        if said(death, "reason") == "rejected":
            break
        names.append(said(death, "queue"))
    return set(names)
