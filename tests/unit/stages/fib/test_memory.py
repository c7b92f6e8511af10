"""What is remembered of nexthop objects: what was noted is there, whatever the end of the process."""

from socket import AF_INET, AF_INET6

from stages.fib.memory import Memory, Remembered

V4 = Remembered(AF_INET, bytes([192, 0, 2, 1]), 0)
V6 = Remembered(AF_INET6, bytes(15) + b"\1", 7)


def test_a_new_process_knows_what_was_noted(tmp_path):
    """Without any farewell, all notes are read again, the last of each object."""
    memory = Memory(tmp_path / "nexthops", "boot 1")
    memory.note(1, V4)
    memory.note(2, V4)
    memory.note(2, V6)
    assert Memory(tmp_path / "nexthops", "boot 1").by_identifier == {1: V4, 2: V6}


def test_of_another_boot_nothing_is_believed(tmp_path):
    """Objects of another boot or namespace are others, whatever their number."""
    Memory(tmp_path / "nexthops", "boot 1").note(1, V4)
    assert Memory(tmp_path / "nexthops", "boot 2").by_identifier == {}


def test_a_line_cut_short_is_passed_over(tmp_path):
    """A file cut at any octet gives the whole lines before the cut, or a part of an address nobody has."""
    path = tmp_path / "nexthops"
    memory = Memory(path, "boot 1")
    memory.note(1, V4)
    memory.note(2, V6)
    whole = path.read_bytes()
    for length in range(len(whole)):
        path.write_bytes(whole[:length])
        found = Memory(path, "boot 1").by_identifier
        assert found.keys() <= {1, 2} and found.get(1, V4) == V4 or length < whole.index(b"\n2 ")


def test_what_is_forgotten_leaves_the_file(tmp_path):
    """The file holds what there is, not all there ever was."""
    path = tmp_path / "nexthops"
    memory = Memory(path, "boot 1")
    for number in range(100):
        memory.note(number, V4)
    memory.keep_only({5})
    memory.note(200, V6)
    assert len(path.read_text().splitlines()) == 3
    assert Memory(path, "boot 1").by_identifier == {5: V4, 200: V6}
