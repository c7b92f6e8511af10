"""The HTTP side: the page, JSON under /api/v1/, and /metrics.

Owns paths and headers. Never asks a stage on its own account, but for one prefix at a time on /api/v1/route.
"""

import secrets
import threading
from pathlib import Path
from typing import Any

from flask import Flask, Response, jsonify, request

from common.bus.question import ControlError
from stages.status.exposition import join
from stages.status.gather import Gatherer

LISTS = ("neighbors", "stages", "tables", "rates", "next_hops", "readers")
PAGE = Path(__file__).with_name("page.html")
ROUTE_WAIT_S = 2.0


def make_application(gatherer: Gatherer) -> Flask:
    """Return the WSGI application."""
    app = Flask("headrace", static_folder=None)
    app.json.sort_keys = False
    page = PAGE.read_text()
    one_route = threading.Lock()

    @app.get("/")
    def show_page() -> Response:
        nonce = secrets.token_urlsafe(16)
        policy = f"default-src 'none'; script-src 'nonce-{nonce}'; style-src 'nonce-{nonce}'; connect-src 'self'"
        headers = {"Content-Security-Policy": policy + "; base-uri 'none'; frame-ancestors 'none'"}
        return Response(page.replace("NONCE", nonce), mimetype="text/html", headers=headers)

    @app.get("/api/v1/")
    def list_paths() -> Response:
        return jsonify({"paths": [f"/api/v1/{name}" for name in (*LISTS, "picture", "history", "route?prefix=")]})

    @app.get("/api/v1/picture")
    def show_picture() -> Response:
        return jsonify(gatherer.look())

    @app.get("/api/v1/history")
    def show_history() -> Response:
        gatherer.look()
        return jsonify({"history": list(gatherer.pictures.history)})

    @app.get("/api/v1/<name>")
    def show_list(name: str) -> Any:
        if name not in LISTS:
            return jsonify({"error": f"no such list; there are {', '.join(LISTS)}"}), 404
        picture = gatherer.look()
        return jsonify({"at": picture.get("at"), name: picture.get(name, [])})

    @app.get("/api/v1/route")
    def show_route() -> Any:
        if not one_route.acquire(timeout=ROUTE_WAIT_S):
            return jsonify({"error": "too many lookups at once"}), 503
        try:
            return jsonify(gatherer.route(request.args.get("prefix", "")))
        except ControlError as error:
            return jsonify({"error": str(error)}), 404
        finally:
            one_route.release()

    @app.get("/metrics")
    def show_metrics() -> Response:
        texts = gatherer.metrics()
        answered = {(stage, instance) for stage, instance, _ in texts}
        silent = [name for name in gatherer.stages() if name not in answered]
        return Response(join(texts, silent), content_type="text/plain; version=0.0.4; charset=utf-8")

    @app.after_request
    def forbid_keeping(response: Response) -> Response:
        response.headers["Cache-Control"] = "no-store"
        response.headers["X-Content-Type-Options"] = "nosniff"
        response.headers["Referrer-Policy"] = "no-referrer"
        return response

    return app
