"""The show of a pair: every request is answered, and its table and picture tell of all that was done."""

import xml.etree.ElementTree as ElementTree

from xump.zeromq.demo import STEPS, Story, picture, table, tell


def test_every_request_is_answered_whoever_is_killed():
    story = tell(4.0)
    assert story.wrong == 0
    assert story.answers
    assert [what for _, what in story.steps] == [f"{what} {whom}" for _, what, whom in STEPS]
    assert len(story.lives["primary"]) == len(story.lives["worker 1"]) == 2
    text = "\n".join(table(story))
    for _, what in story.steps:
        assert what in text and what in picture(story)


def test_the_table_counts_between_steps_and_the_picture_can_be_read():
    story = Story(2.0, {"primary": [[0.0, 1.0]], "worker 1": [[0.0, 2.0]]}, [(1.0, "kill primary")],
                  [(0.0, 0.25, "worker 1"), (0.5, 1.75, "worker 1")], wrong=0, tries=3)
    lines = table(story)
    assert lines[1].split() == ["0.0", "all", "are", "there", "1", "1.25", "s"]
    assert lines[2].split() == ["1.0", "kill", "primary", "1", "1.25", "s"]
    assert "2 requests, 2 answers, 0 wrong ones; clients asked again 1 times" in lines[3]
    root = ElementTree.fromstring(picture(story))
    assert len(root.findall("{http://www.w3.org/2000/svg}rect")) == 1 + 2 + 2
