"""Edits as values, and the words of refusals."""

import pytest

from common.bgp.reasons import ExportRefusal, ImportRefusal
from common.bgp.rules import Edits, NextHopRule, community, community_edits, community_pattern, large_community_pattern
from common.config.load import loads


@pytest.mark.parametrize(
    ("pattern", "matches", "others"),
    [
        ((65000, None), [(65000, 0), (65000, 65535)], [(64999, 0), (0, 65000)]),
        ((None, 666), [(1, 666), (65535, 666)], [(1, 665)]),
        ((None, None), [(0, 0), (65535, 65535)], []),
        ((65535, 666), [(65535, 666)], [(65535, 667)]),
    ],
)
def test_a_pattern_matches_where_its_numbers_agree(pattern, matches, others):
    """None, written "*", stands for any number."""
    value, mask = community_pattern(pattern)
    assert all(community(parts) & mask == value for parts in matches)
    assert not any(community(parts) & mask == value for parts in others)


def test_a_large_pattern_has_a_mask_for_each_part():
    """Three numbers, then the three masks."""
    assert large_community_pattern((1, None, 0)) == (1, 0, 0, 0xFFFFFFFF, 0, 0xFFFFFFFF)


def test_blocks_of_the_configuration_become_edits():
    """Names and wildcards of the file arrive as numbers."""
    config = loads(
        '[router]\nasn = 1\nrouter_id = "1.1.1.1"\n[[neighbor]]\nname = "n"\naddress = "10.0.0.1"\nasn = 2\n'
        'import = { add_communities = ["no-export", "1:2"], remove_communities = ["1:*"],'
        ' add_large_communities = ["1:2:3"], remove_large_communities = ["1:*:*"] }\n'
    )
    assert community_edits(config.neighbors["n"].import_) == {
        "add_communities": (0xFFFFFF01, 1 << 16 | 2),
        "remove_communities": ((1 << 16, 0xFFFF0000),),
        "add_large_communities": ((1, 2, 3),),
        "remove_large_communities": ((1, 0, 0, 0xFFFFFFFF, 0, 0),),
    }


def test_edits_know_whether_they_change_anything():
    """Only the default leaves every set as it is."""
    assert Edits().is_empty and not Edits().added and not Edits().edited
    for edits in (Edits(local_pref=0), Edits(next_hop_rule=NextHopRule.KEEP_GLOBAL), Edits(strip=frozenset({4}))):
        assert not edits.is_empty


def test_every_refusal_has_words_of_its_own():
    """An operator can tell reasons apart, also those of a newer version."""
    for kind in (ImportRefusal, ExportRefusal):
        assert len({reason.words for reason in kind}) == len(kind)
        assert kind.words_of(0) == kind.NONE.words and kind.words_of(250) == "reason 250"
