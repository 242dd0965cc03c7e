"""Access: dependencies of the routes, which return the key of a request or refuse it."""

from typing import Annotated, get_args

from fastapi import Depends, Security
from fastapi.security import APIKeyHeader

from sfumato.serve.http.problems import Problem
from sfumato.serve.service import Serving, in_thread
from sfumato.serve.store import Key, Role

_MOST_KEY = 200  # characters
_ROLES: tuple[Role, ...] = get_args(Role)  # each includes the roles before it

HEADER = "x-api-key"
_SCHEME = APIKeyHeader(name=HEADER, auto_error=False)


class Needs:
    """A dependency of routes that need a role; it returns the key of a request."""

    def __init__(self, role: Role) -> None:
        self.role: Role = role

    def admits(self, key: Key) -> bool:
        """Whether the role of a key is enough."""
        return _ROLES.index(key.role) >= _ROLES.index(self.role)

    async def __call__(self, service: Serving, secret: Annotated[str | None, Security(_SCHEME)]) -> Key:
        """Return the key of a secret, and count a request of that key.

        Raises:
            Problem: 401 if it is not a valid key; 403 if its role is less; 429 if it has used its requests.
        """
        key = None
        if secret and len(secret) <= _MOST_KEY:
            key = service.store.recall(secret) or await in_thread(service.store.key, secret)
        if key is None:
            raise Problem(401, f"no valid key: send yours in the header {HEADER}")
        if (wait := service.store.take(key)) > 0:
            raise Problem(429, f"more requests than the {key.rate} a minute of this key: wait", wait=wait)
        if not self.admits(key):
            raise Problem(403, f"this needs a key of the role {self.role}, and yours has {key.role}")
        return key


READS, WRITES = Needs("read"), Needs("write")
Reader = Annotated[Key, Depends(READS)]
Writer = Annotated[Key, Depends(WRITES)]
Admin = Annotated[Key, Depends(Needs("admin"))]
