"""The HTTP of the service: routes, access, bodies, problems."""

from sfumato.errors import require

require("the server", "serve", "fastapi", "prometheus_client", "cryptography")
