"""The page `/docs`: the API, from its description, without scripts or other hosts."""

import inspect
from html import escape
from typing import Any

from sfumato.errors import needs_extra
from sfumato.serve.http.access import Needs

with needs_extra("the server", "serve"):
    from fastapi import APIRouter, FastAPI, Request, Response
    from fastapi.routing import APIRoute

router = APIRouter()

_STYLE = """
:root { color-scheme: light dark; }
body { max-width: 56rem; margin: 0 auto; padding: 1rem; font: 1rem/1.5 system-ui, sans-serif; }
h2 { margin: 2rem 0 0; font: 600 1rem/1.5 ui-monospace, monospace; overflow-wrap: anywhere; }
p { margin: .3rem 0; }
dl { margin: .3rem 0; padding-left: 1rem; border-left: 3px solid #8888; }
dt { font-family: ui-monospace, monospace; }
pre { overflow-x: auto; padding: .6rem; background: #8882; }
""".strip()


@router.get("/docs", include_in_schema=False)
async def show(request: Request) -> Response:
    """Show the page."""
    text = page(request.app, str(request.base_url).rstrip("/"))
    return Response(text, media_type="text/html")


@router.get("/docs.css", include_in_schema=False)
async def show_style() -> Response:
    """Show the style: the policy of the server forbids inline styles."""
    return Response(_STYLE, media_type="text/css")


def page(app: FastAPI, address: str) -> str:
    """Write the routes of an application, the key that each needs, and its messages as HTML.

    Args:
        app: the application.
        address: of the service, for the example.
    """
    described = app.openapi()
    roles = {
        (method, route.path): _role(route)
        for route in app.routes
        if isinstance(route, APIRoute)
        for method in route.methods or ()
    }
    routes = [
        _route(method.upper(), path, operation, roles[method.upper(), path])
        for path, methods in described["paths"].items()
        for method, operation in methods.items()
    ]
    messages = described["components"]["schemas"].items()
    curl = f'curl -H "x-api-key: $SFUMATO_KEY" {address}/v1/classifiers'
    return (
        '<!doctype html>\n<html lang="en">\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<title>sfumato: HTTP API</title>\n<link rel="stylesheet" href="docs.css">\n'
        f"<h1>HTTP API of sfumato {escape(app.version)}</h1>\n"
        f"<p>{escape(app.summary or '')} Every request but those of health has a key in the header "
        "<code>x-api-key</code>. Errors are JSON (RFC 9457), whose <code>detail</code> says what to do. For "
        'programs: <a href="openapi.json">openapi.json</a>.</p>\n'
        f"<pre>{escape(curl)}</pre>\n{''.join(routes)}<h1>Messages</h1>\n"
        f"{''.join(_message(name, schema) for name, schema in sorted(messages))}</html>\n"
    )


def _role(route: APIRoute) -> str | None:
    """Return the role of the key that a route needs; None if it needs none."""
    key = inspect.signature(route.endpoint).parameters.get("key")
    if key is None:
        return None
    needs = key.annotation.__metadata__[0].dependency
    assert isinstance(needs, Needs)
    return needs.role


def _route(method: str, path: str, operation: dict[str, Any], role: str | None) -> str:
    needs = "needs no key" if role is None else f"needs a key of the role {role}"
    text = f"<h2>{method} {escape(path)}</h2>\n<p>{escape(operation['summary'])}; {needs}.</p>\n"
    parameters = [
        (each["name"], f"{_kind(each['schema'])}, in the {escape(each['in'])}")
        for each in operation.get("parameters", [])
        if each["in"] != "header"
    ]
    text += _list(parameters)
    if body := operation.get("requestBody"):
        kinds = ", ".join(
            f"<code>{escape(kind)}</code>{_title(content['schema'])}"
            for kind, content in body["content"].items()
        )
        text += f"<p>Body: {kinds}</p>\n"
    for status, answer in operation["responses"].items():
        for kind, content in answer.get("content", {}).items():
            if status.startswith("2") and kind == "application/json":
                text += f"<p>{status}: {_kind(content['schema'])}</p>\n"
    return text


def _title(schema: dict[str, Any]) -> str:
    return (
        f" ({escape(schema['title'])}: {', '.join(schema['properties'])})" if "properties" in schema else ""
    )


def _message(name: str, schema: dict[str, Any]) -> str:
    words = " ".join(schema.get("description", "").partition("\n\n")[0].split())
    rows = [(key, _kind(inner)) for key, inner in schema.get("properties", {}).items()]
    return f'<h2 id="{escape(name)}">{escape(name)}</h2>\n<p>{escape(words)}</p>\n{_list(rows)}'


def _list(rows: list[tuple[str, str]]) -> str:
    items = "".join(f"<dt>{escape(name)}</dt><dd>{words}</dd>" for name, words in rows)
    return f"<dl>{items}</dl>\n" if rows else ""


def _kind(schema: dict[str, Any]) -> str:
    """Name the type of a schema as HTML; a message links to its section."""
    if reference := schema.get("$ref"):
        name = escape(reference.rpartition("/")[2])
        return f'<a href="#{name}">{name}</a>'
    if choices := schema.get("anyOf") or schema.get("oneOf"):
        return " or ".join(_kind(choice) for choice in choices)
    if schema.get("type") == "array":
        return f"list of {_kind(schema.get('items', {}))}"
    if "enum" in schema:
        return " or ".join(escape(str(value)) for value in schema["enum"])
    return escape(str(schema.get("type", "any")))
