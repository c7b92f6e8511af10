"""The feed stage: plays neighbors with tables of any size, listens as others, and judges what they are told.

Reads:  a table to announce (synthetic, or a list of prefixes); BGP from the speaker under test.
Writes: BGP to the address it is told to, and to no other.
Owns:   nothing that matters.
Never:  decides about routes.
When it dies: its neighbors' sessions go, as those of any neighbor that dies.
"""
