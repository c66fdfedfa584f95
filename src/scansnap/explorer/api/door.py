"""Who comes in: the token of the link, the cookie it is exchanged for, and the visitor that the cookie names.

As with Jupyter, the link that the server prints ends with ``?token=…``. The first page that is opened with it gets a
cookie instead and is sent on to its address without the token, so that it stays in no history and is shared with
nobody by mistake. The cookie is a random name signed with the token (HMAC-SHA-256): nothing is stored here, and where
the token was chosen with ``--token`` it outlives a restart. Programs say ``Authorization: Bearer TOKEN``.
"""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import re
import secrets
from urllib.parse import parse_qsl, quote, urlencode

from starlette.requests import cookie_parser
from starlette.types import Scope

from scansnap.checks import InputError
from scansnap.explorer.live.visitors import Visitor, Visitors

_TOKEN = re.compile(r"[A-Za-z0-9._~-]{8,200}")
_NAME = re.compile(r"(?=.{1,253}$)([a-z0-9_]([a-z0-9_-]{0,62}))(\.[a-z0-9_][a-z0-9_-]{0,62})*", re.I)


def check_token(token: str) -> str:
    if not _TOKEN.fullmatch(token):
        raise InputError("--token", token, "8 to 200 letters, digits, hyphens, dots, underscores or tildes")
    return token


def check_host_name(given: str) -> str:
    """A name or address under which browsers see the server, with or without its port, in lower case."""
    name, colon, port = (
        given.rpartition(":") if re.search(r":\d+$", given) and not _is_address(given) else (given, "", "")
    )
    inner = name[1:-1] if name.startswith("[") and name.endswith("]") else name
    if not (_is_address(inner) or _NAME.fullmatch(inner)) or (colon and not 0 < int(port) < 65536):
        allowed = "a host's name or address as browsers show it, such as lectures.example.org or 192.168.1.5:8080"
        raise InputError("--allowed-host", given, allowed)
    shown = f"[{inner}]" if ":" in inner else inner
    return f"{shown}{colon}{port}".lower()


def check_root_path(given: str) -> str:
    """The path a proxy serves it under, with a slash in front and none behind; empty for none."""
    path = given.rstrip("/")
    if path and not re.fullmatch(r"(/[A-Za-z0-9_~-][A-Za-z0-9._~-]*)+", path):
        raise InputError(
            "--root-path", given, "a path of letters, digits, hyphens, dots, underscores and tildes, such as /scansnap"
        )
    return path


def is_loopback(host: str) -> bool:
    return host.lower() == "localhost" or (_is_address(host) and ipaddress.ip_address(host).is_loopback)


def _is_address(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True


class Door:
    """Lets in who has the token, or everybody where there is none, and tells visitors apart where several come."""

    def __init__(self, token: str | None, shared: bool, port: int, root_path: str) -> None:
        self.token, self.shared, self.path = token, shared, f"{root_path}/"
        self.cookie = f"scansnap-{port}"  # cookies are of a host, whatever its port
        self.key = hashlib.sha256(b"scansnap visitor " + (token or secrets.token_urlsafe(32)).encode()).digest()
        self.visitors = Visitors()

    def offered(self, scope: Scope) -> str | None:
        """The token in the address of a page, if there is one."""
        page = scope["type"] == "http" and scope["method"] in ("GET", "HEAD") and not scope["path"].startswith("/api/")
        given = dict(_query(scope)) if page and self.token is not None else {}
        return given.get("token")

    def is_right(self, token: str) -> bool:
        return self.token is not None and hmac.compare_digest(token.encode(), self.token.encode())

    def visitor(self, scope: Scope) -> Visitor | None:
        """Who asks; None: somebody without the token."""
        name = self._name(scope)
        if name is None and self.token is not None:
            said = _header(scope, b"authorization")
            if not (said.lower().startswith("bearer ") and self.is_right(said[7:].strip())):
                return None
        if not self.shared:
            return Visitor()
        return self.visitors.find(name or f"address {(scope.get('client') or ('unknown',))[0]}")

    def welcome(self, scope: Scope) -> list[tuple[bytes, bytes]]:
        """The cookie for a page's first visit, as a header; nothing for one that has it."""
        if self._name(scope) is not None or not (self.shared or self.token):
            return []
        name = secrets.token_urlsafe(16)
        secure = "; Secure" if scope.get("scheme") == "https" else ""
        # Lax, not Strict: a link from a course's page must find the cookie it was just given
        cookie = f"{self.cookie}={name}.{self._signature(name)}; Path={self.path}; HttpOnly; SameSite=Lax{secure}"
        return [(b"set-cookie", cookie.encode())]

    def onward(self, scope: Scope) -> str:
        """The same address without the token, relative: it holds under whatever path a proxy has put it."""
        rest = urlencode([(key, value) for key, value in _query(scope) if key != "token"])
        return "./" + quote(scope["path"].rpartition("/")[2]) + (f"?{rest}" if rest else "")

    def _name(self, scope: Scope) -> str | None:
        """The visitor that a rightly signed cookie names."""
        name, _, signature = cookie_parser(_header(scope, b"cookie")).get(self.cookie, "").partition(".")
        return name if hmac.compare_digest(signature.encode(), self._signature(name).encode()) else None

    def _signature(self, name: str) -> str:
        return hmac.new(self.key, name.encode(), hashlib.sha256).hexdigest()


def _query(scope: Scope) -> list[tuple[str, str]]:
    try:
        return parse_qsl(scope.get("query_string", b"").decode("latin-1"), keep_blank_values=True, max_num_fields=100)
    except ValueError:
        return []


def _header(scope: Scope, name: bytes) -> str:
    return b"; ".join(value for key, value in scope["headers"] if key.lower() == name).decode("latin-1")
