"""The status stage: a page, the same as JSON, and the metrics of all stages, over HTTP.

Reads:   the control sockets of all stages and of the supervisor, about once a second.
Writes:  HTTP answers.
Owns:    the last picture of the router and a short history of it.
Never:   holds a stage up: HTTP requests are answered from the picture, so their number changes nothing for others.

When it dies: nothing happens to routes; the next one begins a new history.
"""
