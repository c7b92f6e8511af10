"""The feed stage: plays neighbors with tables of any size, listens as others, and judges what they are told.

Reads:  tables to announce (synthetic, MRT files, prefix lists, recordings of a tap); BGP from the speaker under test.
Writes: BGP to the addresses in its scenario, and to no other; with --bus, adj-rib-in/FAMILY in the place of a speaker.
Owns:   nothing that matters.
Never:  decides about routes.
When it dies: its neighbors' sessions go, as those of any neighbor that dies.

A scenario (scenario.py; its keys in keys.py; made of options by flags.py) names neighbors with what they announce
(source.py, mrt.py, recording.py) and steps (steps.py: changes in churn.py, malformed messages in garbage.py). The
player (load.py) plays the neighbors (neighbor.py, wire.py), the judge (judge.py) knows what each must hold; command.py
shows (display.py), writes and plots (plot.py, picture.py) the report.
"""
