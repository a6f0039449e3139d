"""The one table of paths, and the OpenAPI document (version 3.1) that is made from it."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from importlib.resources import files
from typing import Any

from aiohttp import web

from xump import __version__
from xump._queue_properties import QUEUE_DEFAULTS
from xump.broker.http import deliveries, exchanges, metrics, overview, queues, webhooks, websub
from xump.broker.http.call import Call, answer

Handler = Callable[[Call], Coroutine[Any, Any, web.StreamResponse]]

TEXT: dict[str, Any] = {"type": "string"}
NUMBER: dict[str, Any] = {"type": "integer", "minimum": 0}
SECONDS: dict[str, Any] = {"type": "number", "minimum": 0, "maximum": 100 * 365.25 * 86_400}
OCTET: dict[str, Any] = {"type": "integer", "minimum": 0, "maximum": 255}
SWITCH: dict[str, Any] = {"type": "string", "enum": ["true", "false"]}
STATE: dict[str, Any] = {"type": "string", "enum": ["ready", "delayed", "outstanding", "history"]}
LEASE: dict[str, Any] = {"type": "number", "exclusiveMinimum": 0, "maximum": deliveries.LEASE_SECONDS_MAX}
QUEUE: dict[str, Any] = {"type": "object", "properties": {name: {} for name in QUEUE_DEFAULTS}, "additionalProperties": False}
WEBHOOK: dict[str, Any] = {
    "type": "object", "required": ["queue", "url"], "additionalProperties": False, "properties": {
        "queue": TEXT, "url": {**TEXT, "format": "uri"}, "where": TEXT,
        "credit": {"type": "integer", "minimum": 1}, "secret": TEXT}}
HUB: dict[str, Any] = {
    "type": "object", "required": ["hub.mode", "hub.topic", "hub.callback"], "properties": {
        "hub.mode": {**TEXT, "enum": ["subscribe", "unsubscribe"]}, "hub.topic": {**TEXT, "format": "uri"},
        "hub.callback": {**TEXT, "format": "uri"}, "hub.lease_seconds": NUMBER, "hub.secret": TEXT}}


@dataclass(frozen=True)
class Route:
    """A path, and what is done there."""

    method: str
    """GET, POST, PUT or DELETE."""
    path: str
    """The path; parts in braces are names."""
    handler: Handler
    """The function; the first line of its docstring says what it does."""
    status: int = 200
    """The status if all is well."""
    query: tuple[tuple[str, dict[str, Any]], ...] = ()
    """Parameters of the query, and their schemas."""
    body: str | None = None
    """The type of the request's body; None: it has none."""
    schema: dict[str, Any] = field(default_factory=dict)
    """The schema of the request's body."""
    answer: str | None = "application/json"
    """The type of the answer's body; None: it has none."""


async def description(call: Call) -> web.Response:
    """This document: what there is, as OpenAPI 3.1."""
    call.only()
    return answer(document())


def _file(name: str, kind: str) -> Handler:
    text = files("xump.broker.http").joinpath("page", name).read_text()

    async def page(call: Call) -> web.Response:
        """A part of the live page."""
        return web.Response(text=text, content_type=kind)

    return page


ROUTES = (
    Route("GET", "/", _file("index.html", "text/html"), answer="text/html"),
    Route("GET", "/page.js", _file("page.js", "text/javascript"), answer="text/javascript"),
    Route("GET", "/page.css", _file("page.css", "text/css"), answer="text/css"),
    Route("GET", "/openapi.json", description),
    Route("GET", "/health", overview.health),
    Route("GET", "/metrics", metrics.metrics, answer="text/plain"),
    Route("GET", "/overview", overview.overview, query=(("limit", NUMBER),)),
    Route("GET", "/graph.svg", overview.graph, answer="image/svg+xml"),
    Route("GET", "/queues", queues.listed),
    Route("PUT", "/queues/{queue}", queues.create, 201, body="application/json", schema=QUEUE),
    Route("POST", "/queues/{queue}", queues.publish, 201, body="application/octet-stream", query=(
        ("address", TEXT), ("reply_to", TEXT), ("message_id", TEXT), ("correlation_id", TEXT), ("delay", SECONDS),
        ("at", NUMBER), ("ttl", SECONDS), ("priority", OCTET))),
    Route("POST", "/exchanges/{exchange}", exchanges.publish, 201, body="application/octet-stream", query=(
        ("address", TEXT), ("reply_to", TEXT), ("message_id", TEXT), ("correlation_id", TEXT), ("ttl", SECONDS),
        ("priority", OCTET))),
    Route("DELETE", "/queues/{queue}", queues.delete),
    Route("GET", "/queues/{queue}/messages", queues.browse, query=(
        ("start", TEXT), ("limit", NUMBER), ("state", STATE), ("where", TEXT), ("reverse", SWITCH))),
    Route("GET", "/queues/{queue}/messages/{id}", queues.look),
    Route("POST", "/queues/{queue}/purge", queues.purge),
    Route("POST", "/queues/{queue}/hold", queues.hold),
    Route("POST", "/queues/{queue}/release", queues.release),
    Route("POST", "/queues/{queue}/requeue", queues.requeue, query=(("to", TEXT), ("limit", NUMBER))),
    Route("POST", "/queues/{queue}/take", deliveries.take, query=(
        ("count", {**NUMBER, "minimum": 1, "maximum": deliveries.COUNT_MAX}),
        ("wait", {**SECONDS, "maximum": deliveries.WAIT_SECONDS_MAX}), ("lease", LEASE))),
    Route("POST", "/deliveries/{token}/ack", deliveries.ack),
    Route("POST", "/deliveries/{token}/nack", deliveries.nack, query=(("delay", SECONDS), ("requeue", SWITCH))),
    Route("POST", "/deliveries/{token}/renew", deliveries.renew, query=(("lease", LEASE),)),
    Route("GET", "/topology", queues.topology),
    Route("GET", "/webhooks", webhooks.listed),
    Route("PUT", "/webhooks/{webhook}", webhooks.put, 201, body="application/json", schema=WEBHOOK),
    Route("DELETE", "/webhooks/{webhook}", webhooks.delete),
    Route("POST", "/hub", websub.hub, 202, body="application/x-www-form-urlencoded", schema=HUB, answer=None),
    Route("GET", "/topics/{queue}/{pattern}", websub.topic, answer="application/octet-stream"),
)


def document() -> dict[str, Any]:
    """The OpenAPI document."""
    paths: dict[str, dict[str, Any]] = {}
    for route in ROUTES:
        paths.setdefault(route.path, {})[route.method.lower()] = _operation(route)
    return {
        "openapi": "3.1.0",
        "info": {"title": "Xump", "version": __version__, "description": "The HTTP API of a Xump broker."},
        "paths": paths,
        "components": {
            "securitySchemes": {"basic": {"type": "http", "scheme": "basic"}},
            "responses": {"problem": {"description": "What is wrong.", "content": {"application/problem+json": {"schema": {
                "type": "object", "required": ["title", "status", "detail"],
                "properties": {"title": TEXT, "status": NUMBER, "detail": TEXT}}}}}},
        },
        "security": [{"basic": []}, {}],
    }


def _operation(route: Route) -> dict[str, Any]:
    names = [part[1:-1] for part in route.path.split("/") if part.startswith("{")]
    query = [*route.query, ("vhost", {**TEXT, "default": "/"})]
    said = (route.handler.__doc__ or "").strip().partition("\n")[0]
    content: dict[str, Any] = {} if route.answer is None else {"content": {route.answer: {"schema": {}}}}
    made: dict[str, Any] = {
        "summary": said,
        "parameters": [{"name": name, "in": "path", "required": True, "schema": {**TEXT, "minLength": 1}} for name in names]
        + [{"name": name, "in": "query", "schema": schema} for name, schema in query],
        "responses": {str(route.status): {"description": said, **content}, "default": {"$ref": "#/components/responses/problem"}},
    }
    if route.body is not None:
        made["requestBody"] = {"content": {route.body: {"schema": route.schema}}}
    return made
