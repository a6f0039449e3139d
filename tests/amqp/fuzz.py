"""Mutated frames by the hour: `python -m tests.amqp.fuzz --seconds 3600`.

Streams of valid frames are changed: octets flipped, pieces cut out, doubled, swapped. The codec must read them without a crash,
say the same however they are cut, and take nothing after an error. It prints its seed; `--seed` repeats a run. AddressSanitizer
sees more: `make asan` builds what to run it with.
"""

import argparse
import random
import time

from pamqp import commands

from tests.amqp.frames import ack, any_method, cut, events, nack, publish, raw, reject

PROPERTIES = (
    {}, {"delivery_mode": 2}, {"headers": {"a": [1, "x", {"b": None}], "CC": ["q"]}, "priority": 3},
    {"content_type": "text/plain", "expiration": "5", "user_id": "guest", "reply_to": "r", "message_id": "m", "app_id": "a"},
)


def frames(chance):
    """A stream of valid frames."""
    parts = []
    for _part in range(chance.randrange(1, 6)):
        channel = chance.choice((1, 2, 7))
        parts.append(chance.choice((
            lambda channel=channel: publish(channel, "e", "k" * chance.randrange(20), bytes(chance.randrange(3000)),
                                            chance.choice(PROPERTIES)),
            lambda channel=channel: publish(channel, "", "q", bytes(9000), frame_max=4096),
            lambda channel=channel: ack(channel, chance.getrandbits(62), True) + nack(channel, 5) + reject(channel, 6),
            lambda channel=channel: any_method(channel, commands.Queue.Declare(queue="q", arguments={"x-message-ttl": 5})),
            lambda: raw(8, 0, b""),
        ))())
    return b"".join(parts)


def mutated(stream, chance):
    data = bytearray(stream)
    for _change in range(chance.randrange(1, 4)):
        at, size = chance.randrange(len(data) + 1), chance.choice((1, 1, 2, 4, 8, 100))
        what = chance.randrange(5)
        if what == 0 and at < len(data):
            data[at] ^= 1 << chance.randrange(8)
        elif what == 1:
            data[at:at + size] = chance.randbytes(size)
        elif what == 2:
            del data[at:at + size]
        elif what == 3:
            data[at:at] = data[at:at + size]
        elif at + 4 <= len(data):
            data[at:at + 4] = chance.choice((b"\0\0\0\0", b"\xff\xff\xff\xff", b"\x7f\xff\xff\xff", b"\0\0\x10\0"))
    return bytes(data)


def check(stream, chance):
    """What the codec says of it, however it is cut."""
    whole = events([stream])
    places = [chance.randrange(len(stream) + 1) for _place in range(chance.randrange(8))]
    assert events(cut(stream, places)) == whole, (stream, places)
    errors = [at for at, said in enumerate(whole) if said[0] == "error"]
    assert errors in ([], [len(whole) - 1]), stream


def run(seed, seconds=None, streams=None):
    """Returns how many streams were read."""
    chance = random.Random(seed)
    deadline = None if seconds is None else time.monotonic() + seconds
    count = 0
    while (streams is None or count < streams) and (deadline is None or time.monotonic() < deadline):
        check(mutated(frames(chance), chance), chance)
        count += 1
    return count


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 32))
    options = parser.parse_args()
    print(f"seed {options.seed}", flush=True)
    print(f"{run(options.seed, options.seconds)} streams, all read in the same way however they were cut")


if __name__ == "__main__":
    main()
