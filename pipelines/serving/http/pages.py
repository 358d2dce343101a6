"""The page at / where a person tries the models in a browser: three files of this package, which load nothing from elsewhere."""

from importlib.resources import files

from starlette.responses import Response

FILES = {"index.html": "text/html", "page.css": "text/css", "page.js": "text/javascript"}
# nothing but its own files, what it makes itself (images and sounds that are to be sent), and requests to this server
POLICY = ("default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob: data:; media-src blob:; connect-src 'self'; "
          "base-uri 'none'; form-action 'none'; frame-ancestors 'none'")
HEADERS = {"Content-Security-Policy": POLICY, "X-Content-Type-Options": "nosniff", "Referrer-Policy": "no-referrer",
           "Permissions-Policy": "microphone=(self), camera=(self)", "Cache-Control": "no-cache"}


def page(name: str) -> Response:
    """One of FILES."""
    return Response(_CONTENTS[name], headers={**HEADERS, "Vary": "Accept"}, media_type=FILES[name])


def wants_page(accept: str) -> bool:
    """Whether a client asks for HTML by name, as browsers do; programs get JSON."""
    return "text/html" in accept.lower()


_CONTENTS = {name: (files(__package__) / "page" / name).read_bytes() for name in FILES}
