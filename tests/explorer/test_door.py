"""Who is let in: names, origins, the token of the link, its cookie, and a path of a proxy."""

import asyncio
import json
from typing import Any

import pytest

from scansnap.checks import InputError
from scansnap.explorer.api import door as module
from scansnap.explorer.api.door import Door, check_host_name, check_root_path, check_token, is_loopback
from scansnap.explorer.api.guard import Guard, Names
from scansnap.explorer.live import visitors

TOKEN = "a-token-of-a-link"


class App:
    """Says whom it served and under which path."""

    def __init__(self) -> None:
        self.seen: list[tuple[str, str, bool]] = []

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        visitor = visitors.current()
        self.seen.append((scope["path"], visitor.name, visitor.capped))
        if scope["type"] == "websocket":
            await send({"type": "websocket.accept"})
            return
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"ok"})


class House:
    """A guarded application and requests to it."""

    def __init__(self, *, token: str | None = TOKEN, shared: bool = True, root: str = "", host: str = "127.0.0.1",
                 allowed: tuple[str, ...] = ()) -> None:  # fmt: skip
        self.app = App()
        self.guard = Guard(self.app, Names(host, 8765, allowed), Door(token, shared, 8765, root), root)

    def ask(
        self, path: str = "/", method: str = "GET", kind: str = "http", scheme: str = "http", **headers: str
    ) -> Any:
        """Status, headers and body; of a socket the type of the first answer."""
        path, _, query = path.partition("?")
        given = {"host": "localhost:8765", **headers}
        scope = {"type": kind, "path": path, "raw_path": path.encode(), "query_string": query.encode(),
                 "scheme": scheme, "client": ("10.0.0.7", 5),
                 "headers": [(k.encode(), v.encode()) for k, v in given.items()]}  # fmt: skip
        if kind == "http":
            scope["method"] = method
        sent: list[Any] = []

        async def send(message: Any) -> None:
            sent.append(message)

        asyncio.run(self.guard(scope, None, send))  # type: ignore[arg-type]
        if kind == "websocket":
            return sent[0]["type"]
        return sent[0]["status"], {k.decode(): v.decode() for k, v in sent[0]["headers"]}, sent[1]["body"].decode()

    def cookie(self, path: str = f"/?token={TOKEN}") -> str:
        return str(self.ask(path)[1]["set-cookie"]).split(";")[0]


def test_without_the_token_nothing_is_served() -> None:
    house = House()
    for path in ("/", "/docs", "/static/js/main.js", "/api/health", "/api/runs/x/film.html", "/vendor/plotly.min.js"):
        assert house.ask(path)[0] == 401, path
    assert house.ask("/ws", kind="websocket") == "websocket.close"
    assert house.ask("/api/check", method="POST")[0] == 401
    assert house.app.seen == []
    status, headers, body = house.ask("/")
    assert (headers["content-type"], "token" in body) == ("text/html; charset=utf-8", True)
    assert headers["content-security-policy"].startswith("default-src 'none'")
    assert set(json.loads(house.ask("/api/health")[2])) == {"field", "message"}
    assert status == 401


def test_the_token_becomes_a_cookie_and_leaves_the_address() -> None:
    house = House()
    status, headers, _ = house.ask(f"/probe?x=1&token={TOKEN}&y=a+b")
    assert (status, headers["location"]) == (303, "./probe?x=1&y=a+b")
    cookie = headers["set-cookie"]
    assert TOKEN not in cookie
    assert "; HttpOnly; SameSite=Lax" in cookie
    assert "; Path=/;" in cookie
    assert "Secure" not in cookie
    assert "; Secure" in house.ask(f"/?token={TOKEN}", scheme="https")[1]["set-cookie"]
    kept = cookie.split(";")[0]
    assert house.ask("/api/health", cookie=kept)[0] == 200
    assert house.ask("/api/health", cookie=f'other={{"a": 1}}; {kept}; more=2')[0] == 200, "other cookies of the host"
    assert house.ask("/ws", kind="websocket", cookie=kept) == "websocket.accept"
    assert "set-cookie" not in house.ask(f"/?token={TOKEN}", cookie=kept)[1], "who has one keeps it"


@pytest.mark.parametrize("path", ["/?token=", "/?token=wrong-token", f"/?token={TOKEN}x", "/?token=%00", "/?token=é"])
def test_another_token_is_refused(path: str) -> None:
    house = House()
    assert house.ask(path)[0] == 401
    assert house.ask(path, cookie=house.cookie())[0] == 401, "also of one who has a cookie: the link is not this one"


def test_a_forged_cookie_is_refused() -> None:
    house = House()
    name, _, value = house.cookie().partition("=")
    visitor, _, signature = value.partition(".")
    for forged in (visitor, f"{visitor}.", f"{visitor}x.{signature}", f"{visitor}.{signature[:-1]}", f".{signature}",
                   "é.é", TOKEN):  # fmt: skip
        assert house.ask("/api/health", cookie=f"{name}={forged}")[0] == 401, forged
    assert House(token="another-token").ask("/api/health", cookie=house.cookie())[0] == 401
    assert House().ask("/api/health", cookie=house.cookie())[0] == 200, "a chosen token's cookie outlives a restart"


def test_tokens_and_cookies_are_compared_in_constant_time(monkeypatch: pytest.MonkeyPatch) -> None:
    compared: list[tuple[bytes, bytes]] = []

    def compare(a: bytes, b: bytes) -> bool:
        compared.append((a, b))
        return a == b

    house = House()
    cookie = house.cookie()
    monkeypatch.setattr(module.hmac, "compare_digest", compare)
    house.ask("/?token=wrong-token")
    assert (b"wrong-token", TOKEN.encode()) in compared
    compared.clear()
    house.ask("/", cookie=cookie)
    assert len(compared) >= 1


def test_programs_say_bearer() -> None:
    house = House()
    assert house.ask("/api/health", authorization=f"Bearer {TOKEN}")[0] == 200
    assert house.ask("/ws", kind="websocket", authorization=f"bearer {TOKEN}") == "websocket.accept"
    assert house.ask("/api/health", authorization="Bearer wrong")[0] == 401
    assert house.ask("/api/health", authorization=f"Basic {TOKEN}")[0] == 401
    assert house.ask(f"/api/health?token={TOKEN}")[0] == 401, "an API's address is logged here and there"


def test_where_the_token_leads_stays_here() -> None:
    house = House()
    for path in ("//evil.example/", "/javascript:alert(1)", "/a/b\r\nx: y", "//evil.example"):
        location = house.ask(f"{path}?token={TOKEN}")[1]["location"]
        assert location.startswith("./"), location
        assert not set("\r\n") & set(location)
        assert "//" not in location


def test_visitors_are_told_apart_by_their_cookies() -> None:
    house = House()
    one, two = house.cookie(), house.cookie()
    assert one != two
    for cookie in (one, two, one):
        house.ask("/api/health", cookie=cookie)
    names = [name for _, name, _ in house.app.seen]
    assert names[0] == names[2] != names[1]
    assert all(capped for _, _, capped in house.app.seen)


def test_without_a_token_visitors_get_a_cookie_all_the_same() -> None:
    house = House(token=None)
    cookie = house.cookie("/")
    assert house.ask("/", cookie=cookie)[1].get("set-cookie") is None
    house.ask("/api/health", cookie=cookie)
    house.ask("/api/health")
    assert house.app.seen[-1][1] == "address 10.0.0.7"
    assert house.app.seen[-2][1] not in ("address 10.0.0.7", "")


def test_one_person_alone_is_not_capped_and_gets_no_cookie() -> None:
    house = House(token=None, shared=False)
    assert "set-cookie" not in house.ask("/")[1]
    assert house.app.seen[-1][2] is False


@pytest.mark.parametrize(("host", "origin", "allowed", "served"), [
    ("lectures.example.org", None, (), 403),
    ("lectures.example.org", None, ("lectures.example.org",), 200),
    ("LECTURES.example.org:443", "https://lectures.example.org", ("lectures.example.org",), 200),
    ("127.0.0.1:8765", "https://lectures.example.org", ("lectures.example.org",), 200),
    ("127.0.0.1:8765", "https://lectures.example.org", (), 403),
    ("lectures.example.org", "https://evil.example", ("lectures.example.org",), 403),
    ("evil.example", "https://lectures.example.org", ("lectures.example.org",), 403),
    ("lectures.example.org.evil.example", None, ("lectures.example.org",), 403),
    ("lectures.example.org:81", None, ("lectures.example.org",), 403),
    ("lectures.example.org:81", None, ("lectures.example.org:81",), 200),
    ("lectures.example.org", None, ("lectures.example.org:81",), 403),
    ("localhost:8765", "https://localhost:8765", (), 403),
    ("localhost:8765", "null", ("lectures.example.org",), 403),
])  # fmt: skip
def test_names_that_are_allowed(host: str, origin: str | None, allowed: tuple[str, ...], served: int) -> None:
    house = House(token=None, allowed=allowed)
    headers = {"host": host, **({"origin": origin} if origin else {})}
    assert house.ask("/", **headers)[0] == served
    assert house.ask("/ws", kind="websocket", **headers) == ("websocket.accept" if served == 200 else "websocket.close")


@pytest.mark.parametrize(("host", "served"), [
    ("192.168.1.5:8765", 200), ("[fe80::1]:8765", 200), ("192.168.1.5:80", 403), ("192.168.1.5", 403),
    ("evil.example:8765", 403), ("1.2.3.4.evil.example:8765", 403), ("localhost:8765", 200), ("", 403)])  # fmt: skip
def test_listening_everywhere_it_answers_to_every_address_but_to_no_other_name(host: str, served: int) -> None:
    house = House(token=None, host="0.0.0.0")
    assert house.ask("/", host=host)[0] == served
    assert House(token=None, host="192.168.1.5").ask("/", host="192.168.1.6:8765")[0] == 403


def test_a_path_of_a_proxy_whether_or_not_it_takes_it_off() -> None:
    house = House(root="/scan/snap")
    status, headers, _ = house.ask(f"/scan/snap?token={TOKEN}")
    assert (status, headers["location"]) == (307, f"snap/?token={TOKEN}")
    status, headers, _ = house.ask(f"/scan/snap/?token={TOKEN}")
    assert (status, headers["location"]) == (303, "./")
    assert "; Path=/scan/snap/;" in headers["set-cookie"]
    cookie = headers["set-cookie"].split(";")[0]
    for path in ("/scan/snap/api/health", "/api/health"):
        assert house.ask(path, cookie=cookie)[0] == 200
    assert house.ask("/scan/snap/ws", kind="websocket", cookie=cookie) == "websocket.accept"
    assert [path for path, _, _ in house.app.seen] == ["/api/health", "/api/health", "/ws"]
    assert house.ask("/scan/snapper/", cookie=cookie)[0] == 200
    assert house.app.seen[-1][0] == "/scan/snapper/", "only whole parts of the path"


def test_what_is_given_on_the_command_line_is_checked() -> None:
    assert check_token("x" * 8) == "x" * 8
    for bad in ("", "short", "with space", "a/b/c/d/e", "x" * 201, "ünïcödé-token"):
        with pytest.raises(InputError, match="--token"):
            check_token(bad)
    for good, kept in (("Lectures.Example.org", "lectures.example.org"), ("a:8080", "a:8080"), ("10.0.0.1", "10.0.0.1"),
                       ("::1", "[::1]"), ("[::1]:80", "[::1]:80"), ("10.0.0.1:80", "10.0.0.1:80")):  # fmt: skip
        assert check_host_name(good) == kept
    for bad in ("", "*", "http://a", "a/b", "a b", "a:0", "a:70000", "a:", "-a", "a..b", "[a]x"):
        with pytest.raises(InputError, match="--allowed-host"):
            check_host_name(bad)
    assert [check_root_path(path) for path in ("", "/", "/a", "/a/b-c/")] == ["", "", "/a", "/a/b-c"]
    for bad in ("a", "//a", "/a//b", "/../a", "/.", "/a?b", "/a b", "/a%2f", "http://x/"):
        with pytest.raises(InputError, match="--root-path"):
            check_root_path(bad)
    assert [is_loopback(host) for host in ("localhost", "127.0.0.3", "::1", "0.0.0.0", "example.org")] == [
        True, True, True, False, False]  # fmt: skip
