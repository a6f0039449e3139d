"""Arrow data that is wrong: it raises, says where, releases all that it was given once, and never crashes."""

import errno
from contextlib import suppress
from typing import Any

import pytest
from tests.arrow.arrow_by_hand import Column, Given, mapping, numbers, table, texts, views
from hypothesis import given
from hypothesis import strategies as st

from xump_ext.arrow.read import BatchReader

LONG = [b"first of more than twelve", b"second of more than twelve"]
WORDS = texts([b"ab", b"c"])
VIEWS = views(LONG)
INDICES = Column(b"c", 2, [None, b"\x01\x00"], b"address", dictionary=texts([b"no", b"yes"]))
BODIES = texts([b"1", b"\xff"], b"z", b"body")
FIELDS = Column(
    b"+s", 2, [None], b"headers", [texts([b"EU", b"US"], name=b"region"), Column(b"l", 2, [None, numbers("q", 1, 2)], b"size")]
)
KEYS = texts([b"a", b"b", b"a"], name=b"key")
VALUES = texts([b"1", b"2", b"3"], name=b"value")
MAP = mapping([0, 2, 3], KEYS, VALUES)


def released(data: Given) -> None:
    """Everything once, whatever happened; an array that was moved out was released by the reader."""
    data.end()
    assert data.released == data.made


def read(data: Given) -> list[tuple[str, bytes, dict[str, Any]]]:
    try:
        return [(message.address, message.body, dict(message.headers)) for message in BatchReader(data).messages()]
    finally:
        released(data)


@pytest.mark.parametrize("stream", [False, True])
def test_made_by_hand_and_right(stream: bool) -> None:
    assert read(Given(table(WORDS, BODIES, FIELDS), stream=stream)) == [
        ("ab", b"1", {"region": "EU", "size": 1}),
        ("c", b"\xff", {"region": "US", "size": 2}),
    ]
    assert [row[0] for row in read(Given(table(VIEWS), stream=stream))] == [value.decode() for value in LONG]
    assert [row[0] for row in read(Given(table(INDICES), stream=stream))] == ["yes", "no"]
    assert [row[2] for row in read(Given(table(MAP), stream=stream))] == [{"a": "1", "b": "2"}, {"a": "3"}]
    assert read(Given(table(length=3), stream=stream)) == [("", b"", {})] * 3


def test_a_stream_of_many_chunks() -> None:
    chunks = [table(texts([b"%d" % at] * (at % 4))) for at in range(40)]
    assert [row[0] for row in read(Given(*chunks, stream=True))] == [str(at) for at in range(40) for _ in range(at % 4)]


def test_nulls_need_no_sense_beneath_them() -> None:
    bits = b"\x01"
    assert [
        row[0]
        for row in read(Given(table(texts([b"a", b"\xff"], null_count=1).but(buffers=[bits, numbers("i", 0, 1, 2), b"a\xff"]))))
    ] == ["a", ""]
    view = VIEWS.but(null_count=-1, buffers=[bits, VIEWS.buffers[1][:16] + numbers("i", -5, 0, 9, 9), *VIEWS.buffers[2:]])
    assert [row[0] for row in read(Given(table(view)))] == [LONG[0].decode(), ""]
    indices = INDICES.but(null_count=1, buffers=[bits, b"\x01\x77"])
    assert [row[0] for row in read(Given(table(indices)))] == ["yes", ""]
    headers = Column(b"+s", 2, [bits], b"headers", [Column(b"L", 2, [None, numbers("Q", 7, 2**64 - 1)], b"n")], null_count=1)
    assert [row[2] for row in read(Given(table(headers)))] == [{"n": 7}, {}]


def test_no_buffer_is_needed_without_rows() -> None:
    for column in (WORDS, VIEWS, INDICES, BODIES, FIELDS, MAP):
        empty = column.but(length=0, buffers=[None] * len(column.buffers))
        assert read(Given(table(empty))) == []


def entry(column: Column, at: int, changed: Column | None) -> Column:
    """The column with one child changed."""
    return column.but(children=[changed if index == at else child for index, child in enumerate(column.children)])


def long_map(keys: list[bytes]) -> Column:
    return mapping([0, len(keys)], texts(keys, name=b"key"), texts([b"v"] * len(keys), name=b"value"))


def null_key() -> Column:
    return mapping([0, 2, 3], KEYS.but(null_count=1, buffers=[b"\x05", *KEYS.buffers[1:]]), VALUES)


UTF8_WRONG = [
    b"\x80",
    b"\xc0\x80",
    b"\xc1\xbf",
    b"\xe0\x9f\xbf",
    b"\xed\xa0\x80",
    b"\xf0\x8f\xbf\xbf",
    b"\xf4\x90\x80\x80",
    b"\xf5\x80\x80\x80",
    b"\xff",
    b"\xc3",
    b"\xe2\x82",
    b"\xf0\x9f\x98",
    b"a\xc3b",
    b"\xe2\x28\xa1",
    b"\xf0\x9f\x28\x80",
]

DAMAGE: dict[str, tuple[Column, type[Exception], str]] = {
    # offsets
    "starts below zero": (table(WORDS.but(buffers=[None, numbers("i", -1, 1, 2), b"abc"])), ValueError, "'address'.*offset -1"),
    "decreasing": (
        table(WORDS.but(buffers=[None, numbers("i", 0, 2, 1), b"abc"])),
        ValueError,
        "'address', row 1: offset 2 is followed by 1",
    ),
    "decreasing large": (
        table(texts([b"ab", b"c"], b"U").but(buffers=[None, numbers("q", 0, 2, -(2**63)), b"abc"])),
        ValueError,
        "row 1",
    ),
    "decreasing bodies": (table(BODIES.but(buffers=[None, numbers("i", 3, 0, 1), b"abc"])), ValueError, "'body', row 0"),
    "no offsets": (table(WORDS.but(buffers=[None, None, b"abc"])), ValueError, "no buffer for their offsets"),
    "no bytes": (table(WORDS.but(buffers=[None, numbers("i", 0, 2, 3), None])), ValueError, "no buffer for their bytes"),
    "far beyond": (
        table(WORDS.but(buffers=[None, numbers("i", 0, 2, 2**31 - 1), b"abc"])),
        ValueError,
        "row 1: 2147483645 bytes",
    ),
    "far beyond in headers": (
        table(entry(FIELDS, 0, FIELDS.children[0].but(buffers=[None, numbers("i", 0, 2, 2**31 - 1), b"EUUS"]))),
        ValueError,
        "'region', row 1",
    ),
    # arrays
    "negative length": (table(WORDS, length=-1), ValueError, "length -1"),
    "negative length of a column": (table(WORDS.but(length=-2), length=2), ValueError, "length -2"),
    "endless": (table(WORDS.but(length=2**62), length=2**62), ValueError, "length 4611686018427387904"),
    "negative offset": (table(WORDS.but(offset=-1)), ValueError, "at offset -1"),
    "endless offset": (table(WORDS, offset=2**63 - 1), ValueError, "at offset"),
    "shorter than the table": (table(WORDS.but(length=1), length=2), ValueError, "'address'.*shorter than the 2 rows"),
    "shorter than the table with its offset": (table(WORDS, offset=1), ValueError, "shorter than the 3 rows"),
    "headers shorter": (table(WORDS, FIELDS.but(length=1)), ValueError, "'headers'.*shorter"),
    "field shorter": (table(entry(FIELDS, 1, FIELDS.children[1].but(length=1))), ValueError, "'size'.*shorter"),
    "too many nulls": (table(WORDS.but(null_count=3)), ValueError, "3 nulls in 2 rows"),
    "negative nulls": (table(WORDS.but(null_count=-2)), ValueError, "-2 nulls"),
    "nulls without a bitmap": (table(WORDS.but(null_count=1)), ValueError, "no validity bitmap"),
    "table with null rows": (table(WORDS, null_count=1, buffers=[b"\x01"]), ValueError, "row 1 is null as a whole"),
    "too few buffers": (table(WORDS.but(n_buffers=2)), ValueError, "2 buffers, its type has 3"),
    "too many buffers": (table(WORDS.but(n_buffers=4)), ValueError, "4 buffers, its type has 3"),
    "negative buffers": (table(VIEWS.but(n_buffers=-1)), ValueError, "-1 buffers"),
    "no pointer to buffers": (table(WORDS.but(buffers_missing=True)), ValueError, "buffers"),
    "no pointer to the buffers of views": (table(VIEWS.but(buffers_missing=True)), ValueError, "buffers"),
    "table without buffers": (table(WORDS, n_buffers=0), ValueError, "0 buffers"),
    "released": (table(WORDS, array_released=True), ValueError, "released"),
    "released column": (table(WORDS.but(array_released=True)), ValueError, "'address'.*released"),
    "released field": (table(entry(FIELDS, 0, FIELDS.children[0].but(array_released=True))), ValueError, "'region'.*released"),
    "too few children": (table(WORDS, array_children=0), ValueError, "0 children, its type has 1"),
    "too many children": (table(WORDS, array_children=2), ValueError, "2 children"),
    "negative children": (table(WORDS, array_children=-1), ValueError, "-1 children"),
    "no pointer to children": (table(WORDS, children_missing=True), ValueError, "children"),
    "headers lack a child": (table(FIELDS.but(array_children=1)), ValueError, "'headers'.*1 children, its type has 2"),
    # schemas
    "schema released": (table(WORDS, schema_released=True), ValueError, "released"),
    "schema of a column released": (table(WORDS.but(schema_released=True)), ValueError, "lacks child 0"),
    "schema without a child": (table(WORDS, None), ValueError, "lacks child 1"),
    "schema with negative children": (table(WORDS, schema_children=-1), ValueError, "-1 children"),
    "no format": (table(WORDS.but(format=None)), ValueError, "without a format"),
    "no format at all": (table(WORDS, format=None), ValueError, "without a format"),
    "not a table": (WORDS, TypeError, "a table.*'u'"),
    "name not UTF-8": (table(WORDS.but(name=b"\xff")), ValueError, "not UTF-8"),
    "header's name not UTF-8": (table(entry(FIELDS, 0, FIELDS.children[0].but(name=b"\xff"))), ValueError, "not UTF-8"),
    "header without a name": (
        table(entry(FIELDS, 0, FIELDS.children[0].but(name=b""))),
        ValueError,
        "a header's name has 0 bytes",
    ),
    "header with a NULL name": (
        table(entry(FIELDS, 0, FIELDS.children[0].but(name=None))),
        ValueError,
        "a header's name has 0 bytes",
    ),
    "header with an endless name": (
        table(entry(FIELDS, 0, FIELDS.children[0].but(name=b"n" * 65536))),
        ValueError,
        "65536 bytes",
    ),
    "header twice": (table(entry(FIELDS, 0, FIELDS.children[0].but(name=b"size"))), ValueError, "'size' is there twice"),
    "column twice": (table(WORDS, WORDS), ValueError, "'address' is there twice"),
    "unknown column": (table(WORDS.but(name=b"adress")), ValueError, "'adress'.*address, body, reply_to, message_id, .*headers"),
    "unknown format": (table(WORDS.but(format=b"\xffx")), TypeError, "Arrow format"),
    "numbers as an address": (
        table(Column(b"i", 1, [None, bytes(4)], b"address")),
        TypeError,
        "'address' is of type int32, allowed are utf8",
    ),
    "bytes as an address": (table(BODIES.but(name=b"address")), TypeError, "'address' is of type binary"),
    "numbers as a body": (
        table(Column(b"g", 1, [None, bytes(8)], b"body")),
        TypeError,
        "'body' is of type float64, allowed are binary",
    ),
    "months as a header": (
        table(entry(FIELDS, 1, FIELDS.children[1].but(format=b"tiM"))),
        TypeError,
        "'size'.*'tiM', allowed are bool",
    ),
    "seconds that do not fit as a header": (
        table(entry(FIELDS, 1, FIELDS.children[1].but(format=b"tss:", buffers=[None, numbers("q", 1, 2**62)]))),
        ValueError,
        "'size', row 1: 4611686018427387904 units of 1000000000 ns do not fit",
    ),
    "a decimal of a strange width as a header": (
        table(entry(FIELDS, 1, FIELDS.children[1].but(format=b"d:9,2,100"))),
        TypeError,
        "'size'.*'d:9,2,100', allowed are bool",
    ),
    "a list of headers": (table(MAP.but(format=b"+l")), TypeError, "'headers'.*'\\+l'.*a struct, a map"),
    "text as headers": (table(WORDS.but(name=b"headers")), TypeError, "'headers'"),
    "a width below zero": (table(Column(b"w:-1", 1, [None, b"x"], b"body")), TypeError, "w:-1"),
    "no width": (table(Column(b"w:", 1, [None, b"x"], b"body")), TypeError, "w:"),
    "a bare width": (table(Column(b"w", 1, [None, b"x"], b"body")), TypeError, "'body'"),
    "an endless width": (table(Column(b"w:9999999999999999999999", 1, [None, b"x"], b"body")), ValueError, "99999"),
    "a wide width": (table(Column(b"w:4294967296", 1, [None, b"x"], b"body")), ValueError, "4294967296"),
    "a width above the limit": (table(Column(b"w:67108865", 1, [None, b"x"], b"body")), ValueError, "row 0: 67108865 bytes"),
    "a width without values": (table(Column(b"w:3", 1, [None, None], b"body")), ValueError, "no buffer for their values"),
    # dictionaries
    "no dictionary": (table(INDICES.but(dictionary_missing=True)), ValueError, "lacks its dictionary"),
    "dictionary released": (
        table(INDICES.but(dictionary=INDICES.dictionary.but(array_released=True))),
        ValueError,
        "dictionary.*released",
    ),
    "dictionary of negative length": (table(INDICES.but(dictionary=texts([b"x"]).but(length=-1))), ValueError, "length -1"),
    "index beyond": (table(INDICES.but(buffers=[None, b"\x01\x02"])), ValueError, "row 1: index 2 into a dictionary of 2"),
    "index below": (table(INDICES.but(buffers=[None, b"\x01\xff"])), ValueError, "row 1: index -1"),
    "index far beyond": (
        table(INDICES.but(format=b"L", buffers=[None, numbers("Q", 2**64 - 1, 0)])),
        ValueError,
        "index 18446744073709551615",
    ),
    "no indices": (table(INDICES.but(buffers=[None, None])), ValueError, "no buffer"),
    "index of a wrong type": (table(INDICES.but(format=b"g")), TypeError, "indices"),
    "dictionary of a dictionary": (table(INDICES.but(dictionary=INDICES)), TypeError, "indices|dictionary"),
    "dictionary of numbers": (
        table(entry(FIELDS, 1, INDICES.but(name=b"size", dictionary=Column(b"l", 2, [None, bytes(16)])))),
        TypeError,
        "int64 in a dictionary",
    ),
    "dictionary not UTF-8": (
        table(INDICES.but(dictionary=texts([b"no", b"\xff"]))),
        ValueError,
        "dictionary.*entry 1.*not UTF-8",
    ),
    "dictionary decreasing": (
        table(INDICES.but(dictionary=WORDS.but(buffers=[None, numbers("i", 0, 2, 1), b"abc"]))),
        ValueError,
        "dictionary.*entry 1",
    ),
    # views
    "view below zero": (
        table(VIEWS.but(buffers=[None, numbers("i", -1, 0, 0, 0) * 2, *VIEWS.buffers[2:]])),
        ValueError,
        "row 0: a view of -1",
    ),
    "view into no block": (
        table(VIEWS.but(buffers=[None, numbers("i", 13, 0, 1, 0) * 2, *VIEWS.buffers[2:]])),
        ValueError,
        "block 1, there are 1",
    ),
    "view into a block below": (
        table(VIEWS.but(buffers=[None, numbers("i", 13, 0, -1, 0) * 2, *VIEWS.buffers[2:]])),
        ValueError,
        "block -1",
    ),
    "view before the block": (
        table(VIEWS.but(buffers=[None, numbers("i", 13, 0, 0, -1) * 2, *VIEWS.buffers[2:]])),
        ValueError,
        "bytes -1 to 12",
    ),
    "view past the block": (
        table(VIEWS.but(buffers=[None, numbers("i", 13, 0, 0, 39) * 2, *VIEWS.buffers[2:]])),
        ValueError,
        "39 to 52.*has 51",
    ),
    "view far past": (
        table(VIEWS.but(buffers=[None, numbers("i", 2**31 - 1, 0, 0, 2**31 - 1) * 2, *VIEWS.buffers[2:]])),
        ValueError,
        "4294967294",
    ),
    "views without sizes": (table(VIEWS.but(buffers=[*VIEWS.buffers[:3], None])), ValueError, "no buffer for their sizes"),
    "views without a block": (table(VIEWS.but(buffers=[*VIEWS.buffers[:2], None, VIEWS.buffers[3]])), ValueError, "block 0"),
    "views without views": (table(VIEWS.but(buffers=[None, None, *VIEWS.buffers[2:]])), ValueError, "no buffer"),
    "views of few buffers": (table(VIEWS.but(n_buffers=2)), ValueError, "3 or more"),
    # maps
    "map decreasing": (table(mapping([0, 2, 1], KEYS, VALUES)), ValueError, "'headers', row 1: offset 2"),
    "map beyond": (table(mapping([0, 2, 4], KEYS, VALUES)), ValueError, "shorter than the 4"),
    "map below": (table(mapping([-1, 2, 3], KEYS, VALUES)), ValueError, "offset -1"),
    "map without offsets": (table(MAP.but(buffers=[None, None])), ValueError, "no buffer for their offsets"),
    "map without entries": (table(MAP.but(children=[])), ValueError, "0 children"),
    "map lacks entries": (table(MAP.but(array_children=0)), ValueError, "0 children"),
    "map of texts": (table(MAP.but(children=[KEYS])), ValueError, "not structs"),
    "map of threes": (
        table(entry(MAP, 0, MAP.children[0].but(children=[KEYS, VALUES, VALUES]))),
        ValueError,
        "3 fields, allowed are 2",
    ),
    "map with short values": (table(mapping([0, 2, 3], KEYS, VALUES.but(length=2))), ValueError, "values.*shorter"),
    "map with entries released": (
        table(entry(MAP, 0, MAP.children[0].but(array_released=True))),
        ValueError,
        "entries.*released",
    ),
    "map of numbers": (table(mapping([0, 2, 3], KEYS, Column(b"l", 3, [None, bytes(24)]))), TypeError, "values.*int64"),
    "map from bytes": (table(mapping([0, 2, 3], KEYS.but(format=b"z"), VALUES)), TypeError, "keys.*binary"),
    "map from null": (table(null_key()), ValueError, "'headers', row 0: a key is null"),
    "map from nulls": (table(mapping([0, 2, 3], Column(b"n", 3, []), VALUES)), ValueError, "a key is null"),
    "map from nothing": (table(long_map([b"a", b""])), ValueError, "row 0: a name has 0 bytes"),
    "map from a long name": (table(long_map([b"a", b"n" * 65536])), ValueError, "65536 bytes"),
    "map from one name twice": (table(long_map([b"a", b"b", b"a"])), ValueError, "row 0: 'a' is there twice"),
    "map from many names, one twice": (
        table(long_map([b"%d" % at for at in range(50)] + [b"7"])),
        ValueError,
        "row 0: '7' is there twice",
    ),
    "map value not UTF-8": (
        table(mapping([0, 2, 3], KEYS, texts([b"1", b"\xff", b"3"]))),
        ValueError,
        "values.*entry 1.*not UTF-8",
    ),
    "map key not UTF-8": (
        table(mapping([0, 2, 3], texts([b"1", b"\xff", b"3"]), VALUES)),
        ValueError,
        "keys.*entry 1.*not UTF-8",
    ),
    # values
    "integer too large": (
        table(entry(FIELDS, 1, Column(b"L", 2, [None, numbers("Q", 2**63 - 1, 2**63)], b"size"))),
        ValueError,
        "'size', row 1: 9223372036854775808 does not fit in 64 bits",
    ),
    "header not UTF-8": (table(entry(FIELDS, 0, texts([b"EU", b"\xed\xa0\x80"], name=b"region"))), ValueError, "'region', row 1"),
    "view not UTF-8": (table(views([b"fine", b"not\xff"])), ValueError, "row 1.*not UTF-8"),
    **{
        f"not UTF-8: {wrong!r}": (
            table(texts([b"fine", "ä".encode(), b"x" * 20 + wrong])),
            ValueError,
            "'address', row 2.*not UTF-8",
        )
        for wrong in UTF8_WRONG
    },
}


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("case", DAMAGE)
def test_damage_is_told(case: str, stream: bool) -> None:
    column, error, reason = DAMAGE[case]
    data = Given(column, stream=stream)
    if stream and column.array_released:
        assert read(data) == []  # a released array is how a stream ends
        return
    with pytest.raises(error, match=reason):
        read(data)


@pytest.mark.parametrize("case", DAMAGE)
def test_damage_in_a_later_chunk(case: str) -> None:
    column, error, _ = DAMAGE[case]
    if column.format != b"+s" or column.array_released:
        return
    sound = column.but(
        length=0,
        children=[
            child
            and child.but(
                length=0,
                children=[
                    grand and grand.but(length=0, children=[leaf and leaf.but(length=0) for leaf in grand.children])
                    for grand in child.children
                ],
            )
            for child in column.children
        ],
    )
    data = Given(sound, column, stream=True)
    with pytest.raises(error):
        read(data)


@pytest.mark.parametrize("column", [VIEWS, INDICES, MAP], ids=["views", "indices", "map"])
def test_every_bit_flipped(column: Column) -> None:
    """Of the buffers whose bounds are known: an error or other rows, but nothing read that is not there."""
    for at, buffer in enumerate(column.buffers[:2]):
        for bit in range(8 * len(buffer or b"")):
            flipped = bytearray(buffer or b"")
            flipped[bit // 8] ^= 1 << bit % 8
            data = Given(
                table(
                    column.but(buffers=[bytes(flipped) if index == at else other for index, other in enumerate(column.buffers)])
                )
            )
            with suppress(ValueError):
                assert len(read(data)) == 2


@given(st.lists(st.binary(max_size=20), min_size=1, max_size=5), st.sampled_from([b"u", b"U", b"vu"]))
def test_utf8_is_what_python_says(values: list[bytes], format: bytes) -> None:
    data = Given(table(views(values) if format == b"vu" else texts(values, format)))
    try:
        expected = [value.decode() for value in values]
    except UnicodeDecodeError:
        with pytest.raises(ValueError, match="not UTF-8"):
            read(data)
    else:
        assert [row[0] for row in read(data)] == expected


def test_utf8_of_all_short_sequences() -> None:
    """Every first pair of bytes, with tails at the borders."""
    tails = [b"", b"\x7f", b"\x80", b"\xbf", b"\xc0", b"\x80\x80", b"\xbf\xbf", b"\x80\x7f", b"\x80\xc0"]
    values = [
        bytes((first, second)) + tail
        for first in (0x41, *range(0xBE, 0x100))
        for second in range(0x70, 0x100, 1)
        for tail in tails
    ]
    sound, wrong = [], []
    for value in values:
        try:
            sound.append(value.decode())
        except UnicodeDecodeError:
            wrong.append(value)
    assert [row[0] for row in read(Given(table(texts([text.encode() for text in sound]))))] == sound
    for value in wrong[::7]:
        with pytest.raises(ValueError, match="not UTF-8"):
            BatchReader(Given(table(texts([value]))))


# ---- streams and capsules


@pytest.mark.parametrize(
    ("code", "error"), [(errno.EINVAL, ValueError), (errno.EIO, OSError), (errno.ENOMEM, MemoryError), (-1, ValueError)]
)
@pytest.mark.parametrize("where", ["schema_code", "code"])
@pytest.mark.parametrize("reason", [b"the disk is on fire", b"\xff", None])
def test_a_stream_that_fails(code: int, error: type[Exception], where: str, reason: bytes | None) -> None:
    data = Given(
        table(WORDS),
        stream=True,
        error=reason,
        code=code if where == "code" else 0,
        schema_code=code if where == "schema_code" else 0,
    )
    with pytest.raises(error, match="fire" if reason and b"fire" in reason else "failed"):
        read(data)


def test_what_was_read_cannot_be_read_again() -> None:
    for stream in (False, True):
        data = Given(table(WORDS), stream=stream)
        capsules = data.as_stream() if stream else data.as_array()
        again = type("Again", (), {"__arrow_c_stream__" if stream else "__arrow_c_array__": lambda self, given=capsules: given})
        assert len(BatchReader(again()).messages()) == 2
        with pytest.raises(ValueError, match="was released: it can be read once"):
            BatchReader(again())
        released(data)


@pytest.mark.parametrize("stream", [False, True])
def test_a_capsule_of_another_name(stream: bool) -> None:
    with pytest.raises(ValueError, match="PyCapsule"):
        read(Given(table(WORDS), stream=stream, capsule=b"arrow_something"))


@pytest.mark.parametrize("data", [None, [], b"", {"address": ["a"]}, 7, object()])
def test_no_arrow_data(data: Any) -> None:
    with pytest.raises(TypeError, match="__arrow_c_stream__ or __arrow_c_array__"):
        BatchReader(data)


@pytest.mark.parametrize("answer", [None, (), (1, 2), "ab", (1, 2, 3)])
def test_no_capsules(answer: Any) -> None:
    for name in ("__arrow_c_array__", "__arrow_c_stream__"):
        with pytest.raises((TypeError, ValueError)):
            BatchReader(type("Data", (), {name: lambda self: answer})())


def test_a_producer_that_raises() -> None:
    def refuse(self: object) -> object:
        raise LookupError("no such table")

    with pytest.raises(LookupError, match="no such table"):
        BatchReader(type("Data", (), {"__arrow_c_stream__": refuse})())


def test_a_reader_reads_one_batch() -> None:
    data, other = Given(table(WORDS)), Given(table(WORDS))
    reader = BatchReader(data)
    with pytest.raises(TypeError, match="one batch"):
        reader.__init__(other)
    assert len(reader.messages()) == 2
    assert reader.messages() == []
    del reader
    released(data)
    released(other)
    assert BatchReader.__new__(BatchReader).messages() == []
