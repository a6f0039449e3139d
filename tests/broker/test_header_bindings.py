"""Bindings of headers exchanges: the selectors of the engine hit what the check of one binding says, and most need no check."""

from hypothesis import given, strategies as st

import xump
from xump import Message, copy_to
from xump.broker import exchange_graph
from xump.broker.envelope import annex, join
from xump.broker.exchange_graph import ExchangeGraph
from xump.broker.exchanges import Binding, Destination, Exchange
from xump.broker.header_bindings import HeaderBindings, headers_match
from xump.broker.tables import Typed, encode_table, text

values = st.sampled_from([
    Typed("S", b"a"), Typed("x", b"a"), Typed("S", b"\xff"), Typed("x", b"\xff"), Typed("S", b"5"), Typed("I", 5), Typed("l", 5),
    Typed("d", 5.0), Typed("d", 5.5), Typed("d", float("inf")), Typed("T", 5), Typed("T", (1 << 64) - 1), Typed("t", True),
    Typed("t", False), Typed("I", 1), Typed("V", None), Typed("D", (0, 5)), Typed("A", [Typed("I", 5)]),
    Typed("A", [Typed("l", 5)]), Typed("F", {"a": Typed("I", 5)}), Typed("F", {"b": Typed("I", 5), "a": Typed("I", 5)}),
    Typed("F", {"a": Typed("I", 5), "b": Typed("I", 5)})])
names = st.sampled_from(["a", "b", "x-c", "sys.address", "\udcff"])
tables = st.dictionaries(names, values, max_size=4)
modes = st.sampled_from([{}, {"x-match": text("all")}, {"x-match": text("any")}, {"x-match": text("all-with-x")},
                         {"x-match": text("any-with-x")}])
arguments = st.builds(lambda mode, table: {**mode, **table}, modes, tables)


def with_headers(table):
    return Message("key", b"body", annex=annex(b"", join({"headers": encode_table(table)})))


@given(bound=st.lists(arguments, max_size=6), came=st.lists(tables, max_size=6))
def test_selectors_hit_what_the_check_says(bound, came):
    with xump.Engine() as engine:
        engine.create_queue("x", transit=True)
        bindings = HeaderBindings(exchange_graph.headers_in)
        for number, one in enumerate(bound):
            engine.create_queue(f"q{number}")
            for when in bindings.conditions(number, one):
                engine.create_selector("x", when=when, do=copy_to(f"q{number}"))
        for table in came:
            engine.publish("x", with_headers(table))
        assert [engine.queues[f"q{number}"].ready for number in range(len(bound))] == [
            sum(headers_match(one, table) for table in came) for one in bound]
        engine.check()


def test_what_is_bound_by_texts_and_numbers_is_only_looked_up(monkeypatch):
    """However many bindings there are, and though all of them have an argument in common."""
    def read(message):
        raise AssertionError("the headers were read in Python")

    monkeypatch.setattr(exchange_graph, "headers_in", read)
    with xump.Engine() as engine:
        graph, exchange = ExchangeGraph(engine), Exchange("e", "headers")
        graph.declared(exchange)
        for number in range(500):
            engine.create_queue(f"q{number}")
            graph.bound(exchange, Binding(Destination("queue", f"q{number}"), "", {
                "kind": text("order"), "customer": text(f"c{number}"), "size": Typed("I", number % 3)}))
        queue = graph.queue_of("e")
        for number in range(500):
            engine.publish(queue, with_headers({
                "kind": text("order"), "customer": text(f"c{number}"), "size": Typed("l", number % 3), "more": Typed("V", None)}))
        assert [engine.queues[f"q{number}"].ready for number in range(500)] == [1] * 500


def test_an_unbound_binding_takes_all_of_its_selectors_with_it():
    with xump.Engine() as engine:
        graph, exchange = ExchangeGraph(engine), Exchange("e", "headers")
        graph.declared(exchange)
        engine.create_queue("q")
        binding = Binding(Destination("queue", "q"), "", {"x-match": text("any"), "a": text("1"), "b": Typed("V", None)})
        graph.bound(exchange, binding)
        assert len(engine.selectors) == 3
        graph.unbound(binding)
        assert len(engine.selectors) == 0


def test_nothing_is_left_of_bindings_that_have_gone():
    """Temporary queues bind by values of their own."""
    with xump.Engine() as engine:
        graph, exchange = ExchangeGraph(engine), Exchange("e", "headers")
        graph.declared(exchange)
        engine.create_queue("q")
        bindings = [Binding(Destination("queue", "q"), "", {"request": text(f"r{number}"), "kind": text("a")})
                    for number in range(9)]
        for binding in bindings:
            graph.bound(exchange, binding)
        for binding in bindings:
            graph.unbound(binding)
        left = graph._by_headers["e"]
        assert not left._counts and not left._chosen and not graph._headers_of and not graph._selectors
