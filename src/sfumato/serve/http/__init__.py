"""The HTTP of the service: routes, access, bodies, problems."""
