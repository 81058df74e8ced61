"""The HTTP API: routes on Powertools, over a client; it needs no workflow code."""

from stepwell.api.app import add_routes, http_api
from stepwell.api.endpoints import ClientProvider
from stepwell.api.problems import BODY_LIMIT

__all__ = ["BODY_LIMIT", "ClientProvider", "add_routes", "http_api"]
