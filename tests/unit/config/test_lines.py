"""Finding the lines of keys in a TOML text."""

from common.config.lines import lines_of

TEXT = '''\
top = 1
[table]  # remark
"quoted" = [
    1,  # ]
    "]",
]
after = """
[not.a.table]
key = 1
"""
dotted.key = { one = 1, two = "x, three = 3" }

[[list]]
name = "first"
[list.block]
inner = 1
[[list]]
name = "second"
'''

LIST = '''\
list = ["zero", 1,  # "remark", [
  ["two", "still two"], { three = [3] }

  , """four, [
not five""",
  "a, b", # six is last
  6 ]
after = ["zero"]
'''


def test_values_of_a_list():
    """Each value of a list has the line on which it begins, whatever kind it is and however the list is laid out."""
    lines = lines_of(LIST)
    assert [lines["list", index] for index in range(7)] == [1, 1, 2, 2, 4, 6, 7]
    assert lines["after",] == lines["after", 0] == 8
    assert ("list", 7) not in lines and ("after", 1) not in lines


def test_every_form_of_key():
    """Bare, quoted, dotted and inline keys, tables and arrays of tables have the line on which they begin."""
    lines = lines_of(TEXT)
    assert lines["top",] == 1
    assert lines["table",] == 2
    assert lines["table", "quoted"] == 3
    assert lines["table", "after"] == 7
    assert lines["table", "dotted", "key"] == 11
    assert lines["table", "dotted", "key", "two"] == 11
    assert lines["list",] == lines["list", 0] == 13
    assert lines["list", 0, "name"] == 14
    assert lines["list", 0, "block", "inner"] == 16
    assert lines["list", 1, "name"] == 18
    assert ("not", "a", "table") not in lines
