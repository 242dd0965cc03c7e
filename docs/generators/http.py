"""The HTTP API of the service: its routes and messages, from the OpenAPI description that it serves."""

from typing import Any


def pages() -> dict[str, str]:
    """Path below the reference -> text, in Markdown."""
    described = description()
    text = (
        "# HTTP API\n\nThe service describes itself at `/openapi.json`; this page is made from that. "
        "Every request but those of health has the header `x-api-key`. Errors are JSON (RFC 9457).\n"
    )
    for path, methods in described["paths"].items():
        for method, operation in methods.items():
            text += _operation(method.upper(), path, operation)
    text += "\n## Messages\n"
    for name, schema in sorted(described["components"]["schemas"].items()):
        text += _message(name, schema)
    return {"http.md": text}


def description() -> dict[str, Any]:
    """The OpenAPI description of all routes of the service."""
    from fastapi import FastAPI

    import sfumato
    from sfumato.serve.http.routes import counts, router

    app = FastAPI(
        title="sfumato",
        version=sfumato.__version__,
        routes=[*router.routes, *counts.routes],
    )
    return app.openapi()


def _operation(method: str, path: str, operation: dict[str, Any]) -> str:
    text = f"\n## {method} {path}\n\n"
    if words := operation.get("description") or operation.get("summary"):
        text += f"{words}.\n\n" if words[-1] not in ".!?" else f"{words}\n\n"
    parameters = [each for each in operation.get("parameters", []) if each["in"] != "header"]
    if parameters:
        rows = [
            f"| `{each['name']}` | {each['in']} | {'yes' if each.get('required') else 'no'} "
            f"| {_cell(each.get('description') or _kind(each.get('schema', {})))} |"
            for each in parameters
        ]
        text += "| parameter | in | required | |\n|---|---|---|---|\n" + "\n".join(rows) + "\n\n"
    if body := operation.get("requestBody"):
        text += f"Body: {', '.join(f'`{kind}`' for kind in body['content'])}.\n\n"
    rows = []
    for status, answer in operation["responses"].items():
        contents = [_kind(content.get("schema", {})) for content in answer.get("content", {}).values()]
        rows.append(
            f"| {status} | {_cell(answer['description'])} | {_cell(', '.join(dict.fromkeys(contents)))} |"
        )
    return text + "| status | | body |\n|---|---|---|\n" + "\n".join(rows) + "\n"


def _message(name: str, schema: dict[str, Any]) -> str:
    text = f"\n### {name}\n\n"
    if words := schema.get("description"):
        text += " ".join(words.partition("\n\n")[0].split()) + "\n\n"
    rows = [
        f"| `{key}` | {_cell(_kind(inner))} | {_cell(inner.get('description', ''))} |"
        for key, inner in schema.get("properties", {}).items()
    ]
    return text + ("| key | type | |\n|---|---|---|\n" + "\n".join(rows) + "\n" if rows else "")


def _kind(schema: dict[str, Any]) -> str:
    """What a schema takes, in a word or two; a message links to its section."""
    if reference := schema.get("$ref"):
        name = reference.rpartition("/")[2]
        return f"[{name}](#{name.lower()})"
    if choices := schema.get("anyOf") or schema.get("oneOf"):
        return " or ".join(_kind(choice) for choice in choices)
    if schema.get("type") == "array":
        return f"list of {_kind(schema.get('items', {}))}"
    if "enum" in schema:
        return " or ".join(f"`{value}`" for value in schema["enum"])
    return str(schema.get("type", "any"))


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", r"\|").replace("<", r"\<")
